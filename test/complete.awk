# What belongs to a row of a table. `make` runs this twice, when a file that it reads has changed: with stage=code before
# the first file is compiled (where a row has no function or a function no row, compiler and linker would say so in their
# own words; and for what else a row of ops.def wants in itself, since a change of it compiles most of the tree), with
# stage=rest when the programs are built (documentation and tests, which no compiler sees). It fails with the file, what
# is missing there, and what to write. docs/architecture.md says how to add each thing.
#   awk -v stage=code -f test/complete.awk FILES, or stage=rest; a name on standard input is a variable XLANE_* in use
function lacks(file, what) { print file ": error: " what; wrong++ }
function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }
function quoted(n,   c) { split($0, c, /"/); return c[2 * n] }       # the n-th string of a row, without \" in it
function named(at, text) {                                         # at: FILE's index of words; every word of the line
    gsub(/[^A-Za-z0-9_-]+/, " ", text)
    while (match(text, /[^ ]+/)) {
        seen[at, substr(text, RSTART, RLENGTH)] = 1
        text = substr(text, RSTART + RLENGTH)
    }
}

# ---- the tables ----
/^OP\(/ && FILENAME ~ /ops\.def$/ {
    split(substr($0, 4), c, ",")
    name = trim(c[2]); gsub(/"/, "", name)
    if (name == "") next                                   # what is unknown
    op[name] = 1; ident[name] = trim(c[1]); rule[trim(c[6])] = 1
    types[name] = trim(c[6]); gradient[name] = trim(c[7]); sharding[name] = trim(c[8]); kernel[name] = trim(c[9])
    flags[name] = c[10]
}
/^VERB\(/ && FILENAME ~ /verbs\.def$/ { split($0, c, /[()]/); verb[c[2]] = c[2]; gsub(/_/, "-", verb[c[2]]) }
/^PASS\(/ && FILENAME ~ /passes\.def$/ {
    split($0, c, /[(,)]/)
    pass[c[2]] = 1
    if ($0 !~ /, *(ASKED|DEVICE)\)/)
        lacks(FILENAME ":" FNR, "write PASS(" c[2] ", ASKED), or PASS(" c[2] ", DEVICE) if the embedded device is to " \
              "run it")
}
/^RUNG\(/ && FILENAME ~ /rungs\.def$/ {
    split($0, c, /"/)
    rung[c[2]] = 1
    order = order " " c[2]
    if (match(c[7], /[A-Z]+/)) kind[c[2]] = substr(c[7], RSTART, RLENGTH)
    if (c[6] == "") lacks(FILENAME ":" FNR, "the rung " c[2] " does not say what it adds, in its third field")
    if (stage == "rest" && /(TRAIN|SCAN),[ \t]*1(\.0*)?f?,[ \t]*1(\.0*)?f?\)/)
        lacks(FILENAME ":" FNR, "the losses of " c[2] " are 1: build/venv/bin/python test/_rungs.py " c[2] " computes them")
}
FILENAME ~ /ops\.covered$/ && /^[a-z]/ {
    if (stage == "rest" && ($1, $2) in covered) lacks(FILENAME ":" FNR, $1 " " $2 " stands here twice")
    covered[$1, $2] = $3; line[$1, $2] = FNR
    if (match($0, /(cases\/)?[a-z_0-9]+\.mlir/)) program_of[$1, $2] = "test/" substr($0, RSTART, RLENGTH)
    if (stage == "rest" && (NF < 3 && $1 != "floatless" || $3 == "-" && NF < 4))
        lacks(FILENAME ":" FNR, $0 ": a name or a reason is missing")
}
/^(UNARY|BINARY|DIVISION|TOGETHER)\(/ && FILENAME ~ /strip\.def$/ { split($0, c, /[(,]/); strip[c[2]] = 1 }
/^EW\(/ && FILENAME ~ /ew\.def$/ { split($0, c, /[(,]/); loops[trim(c[2])] = 1 }
/^CAUSE\(/ && FILENAME ~ /cause\.def$/ { cause[quoted(1)] = 1 }
/^CAUSE\(/ && FILENAME ~ /retry\.def$/ { split($0, c, /[(,]/); failure[c[2]] = 1 }
/^CLASS\(/ && FILENAME ~ /probe\.def$/ { class[quoted(1)] = 1 }
/^SETTING\(/ && FILENAME ~ /profile\.def$/ {
    split($0, c, /[(,]/)
    k = trim(c[2]) "." trim(c[3])
    n = split($0, c, /"/)
    setting[k] = "| `" k "` | " (trim($4) == "NULL," ? "" : "`" c[2] "`") " | " c[n - 1] " |"
}
/^(VAR|ENV)\(/ && FILENAME ~ /variables\.def$/ {
    split($0, c, /[(,]/)
    k = (/^VAR/ ? "XLANE_" : "XLANE_CPU_") c[2]
    variable[k] = $0
    sub(/"\)[^"]*$/, "", variable[k])
    sub(/.*[^\\]", *"/, "", variable[k])
    gsub(/\\"/, "\"", variable[k])
}
FILENAME == "-" || FILENAME == "" { if ($1 ~ /^XLANE_/) used[$1] = $2; next }
FILENAME ~ /train\/config\.c$/ && /^ *\{ "[a-z_.0-9]+", [A-Z_]+, AT/ { key[quoted(1)] = 1 }

# ---- what is written in C ----
FILENAME ~ /^src\/cli\// {
    if ($0 ~ /->json/) speaks[FILENAME] = 1
    if (match($0, /^XL_VERB\([a-z_]+\)/)) { at = substr($0, 9, RLENGTH - 9); file[at] = FILENAME }
    if (at && $0 ~ /\.help[ \t]*=/) help[at] = 1
    if (at && $0 ~ /\.example[ \t]*=/) example[at] = 1
    if (at && $0 ~ /\.no_json[ \t]*=/) refuses[at] = 1
    if (at && $0 ~ /\.name[ \t]*=/) called_so[at] = quoted(1)
    if (at && $0 ~ /\.run[ \t]*=/) runs[at] = 1
    if (at && $0 ~ /\.opts[ \t]*=/) { takes[at] = 1; given[FILENAME]++ }
    if (at && $0 ~ /\.min[ \t]*=/) least[at] = 1
    if (at && $0 ~ /\.max[ \t]*=/) most[at] = 1
    if (at && $0 ~ /\.args[ \t]*=/) {
        usage[at] = $0
        sub(/.*\.args[ \t]*=[ \t]*"?/, "", usage[at])
        sub(/".*/, "", usage[at])
    }
    if ($0 ~ /^static const xl_opt [a-z_]+\[\]/) options[FILENAME]++
    if ($0 ~ /^};/) at = ""
}
FILENAME ~ /\.c$/ && /^(RULE|ABSENT)\([a-z_0-9]+/ {
    split($0, c, /[(,)]/)
    k = /^ABSENT/ ? "kernel" : FILENAME ~ /infer/ ? "infer" : FILENAME ~ /shard/ ? "shard" : "grad"
    written[k "_" c[2]] = 1
    ruled[k "_" c[2]] = FILENAME; macro[k "_" c[2]] = $0
    sub(/\).*/, ")", macro[k "_" c[2]])
}
match($0, /^(bool|xl_error \*) *xl_(infer|grad|shard|kernel|pass)_[a-z_0-9]+\(/) {
    k = substr($0, RSTART, RLENGTH - 1)
    sub(/.*xl_/, "", k)
    written[k] = 1
    if (k ~ /^pass_/) { sub(/^pass_/, "", k); pass_in[k] = FILENAME }
}
FILENAME ~ /pipeline\.c$/ && /^#define ORDER/ {
    for (text = $0; match(text, /X\([a-z_]+\)/); text = substr(text, RSTART + RLENGTH))
        placed[substr(text, RSTART + 2, RLENGTH - 3)] = 1
}
FILENAME ~ /pass\/fold\.c$/ && !elsewhere {                # what is computed element by element
    if (/^static bool rewrite/) elsewhere = 1
    for (text = $0; match(text, /XL_OP_[A-Z0-9_]+/); text = substr(text, RSTART + RLENGTH))
        folds[substr(text, RSTART + 6, RLENGTH - 6)] = 1
}
FILENAME ~ /rung\.[ch]$/ { named(substr(FILENAME, length(FILENAME)), $0) }
FILENAME ~ /rung\.c$/ && /^ *case XL_RUNG_/ {
    for (text = $0; match(text, /XL_RUNG_[A-Z]+/); text = substr(text, RSTART + RLENGTH))
        climbed[substr(text, RSTART + 8, RLENGTH - 8)] = 1
}
FILENAME ~ /cli\/ladder\.c$/ { named("ladder", $0) }
FILENAME ~ /cpu\/tile\/tile[^\/]*\.c$/ { named("tile", $0) }
FILENAME ~ /^src\/pass\// && FNR == 1 { n = split(FILENAME, c, /[\/.]/); of = c[n - 1]; essay = 1 }
FILENAME ~ /^src\/pass\// && essay {
    if ($0 ~ /needs:/) needs[of] = 1
    if ($0 ~ /keeps:/) keeps[of] = 1
    if ($0 ~ /breaks:/) breaks[of] = 1
    if ($0 ~ /\*\//) essay = 0
}
FILENAME ~ /pass_test\.c$/ {                               # "fold,dce": a list of passes to run
    for (text = $0; match(text, /"[a-z_]+(,[a-z_]+)*"/); text = substr(text, RSTART + RLENGTH)) {
        n = split(substr(text, RSTART + 1, RLENGTH - 2), c, ",")
        for (i = 1; i <= n; i++) tested[c[i]] = 1
    }
}
FILENAME ~ /retry_test\.c$|errors\.yaml$/ { named("errors", $0) }

# ---- documentation and tests ----
FILENAME ~ /docs\/(recompiles|probe|train)\.md$/ { named(FILENAME, $0) }
FILENAME ~ /docs\/profiles\.md$/ && /^\| `[a-z]+\.[a-z_]+` \|/ { split($0, c, /`/); setting_row[c[2]] = $0 }
FILENAME ~ /docs\/variables\.md$/ && /^\| `XLANE_/ { split($0, c, /`/); variable_row[c[2]] = $0 }
FILENAME ~ /^(test|src)\// && /^plant\(|(\/\*|#) cause: / { named("causes", $0) }
FILENAME ~ /test\/probe\.py$/ { named("probe", $0) }
FILENAME ~ /^test\/verifier_errors\.py$/ { named(FILENAME, $0) }
FILENAME ~ /^test\/.*\.mlir$/ {                             # a program: its ops, and whether its gradient is run
    present[FILENAME] = 1
    if (/^\/\/ gradient: /) seen[FILENAME, "gradient:"] = 1
    text = $0
    sub(/\/\/.*/, "", text)
    for (; match(text, /[a-z_]+\.[a-z_0-9]+/); text = substr(text, RSTART + RLENGTH))
        seen[FILENAME, substr(text, RSTART, RLENGTH)] = 1
}
FILENAME ~ /^test\/(grad_fd|jax_ops|corpus)\.py$/ {   # names of cases are strings, or what strings start with
    for (text = $0; match(text, /"[A-Za-z_0-9]+/); text = substr(text, RSTART + RLENGTH))
        seen[FILENAME, substr(text, RSTART + 1, RLENGTH - 1)] = 1
}
FILENAME ~ /\.md$/ {
    if (FILENAME ~ /\/program\.md$/ && /^\| pass \|/ || FILENAME ~ /\/bring-up\.md$/ && /^\| rung \|/) table = $2
    else if (!/^\|/) table = ""
    else if (table == "pass" && $2 ~ /^`/) { w = $2; gsub(/`/, "", w); pass_row[w] = 1 }
    else if (table == "rung" && !/^\|-/) {
        split($0, c, "|")
        n = split(c[2], names, ",")
        for (i = 1; i <= n; i++) {
            rung_row[trim(names[i])] = 1
            if (trim(names[i]) != "probe") told = told " " trim(names[i])
        }
    }
    text = $0
    if (text ~ /`/ || text ~ /^[ \t]*(\$ )?xlane /)
        while (i = index(text, "xlane ")) {
            text = substr(text, i + 6)
            if (match(text, /^[a-z-]+/)) shown[substr(text, 1, RLENGTH)] = 1
        }
}
FILENAME ~ /\.py$/ {                                        # a verb is the argument of a call, or in a list
    text = $0
    gsub(/\.get\("[a-z-]+"|[A-Za-z_0-9)\]]\["[a-z-]+"\]|"[a-z-]+":/, "", text)
    gsub(/"[a-z-]+" (not )?in | in [(\[]("[a-z-]+",? ?)+/, "", text)
    while (match(text, /"[a-z-]+"/)) {
        called[substr(text, RSTART + 1, RLENGTH - 2)] = 1
        if ($0 ~ /"--json"/) reads[substr(text, RSTART + 1, RLENGTH - 2)] = 1
        text = substr(text, RSTART + RLENGTH - 1)
    }
}

# ---- what is asked before anything is compiled ----
function wants(o, column, name, where) {
    if (!((column "_" name) in written))
        lacks("src/ir/ops.def", "the row of " o " names " name ", and there is no xl_" column "_" name ": write " where)
}
function code(   v, d, p, g, o, text) {
    for (v in verb) {
        d = verb[v]
        if (!(v in file)) {
            lacks("src/cli/verbs.def", "VERB(" v ") has no verb: write src/cli/" v ".c with XL_VERB(" v ") = { ... }")
            continue
        }
        if (called_so[v] != d) lacks(file[v], "XL_VERB(" v ") is called \"" called_so[v] "\": write .name = \"" d "\"")
        if (!(v in runs)) lacks(file[v], "XL_VERB(" v ") has no .run, the function that is called")
        if (!(v in takes) && given[file[v]] < options[file[v]])
            lacks(file[v], "XL_VERB(" v ") has no .opts, and no verb takes a table of this file")
        if ((v in least || v in most || v in takes) && !(v in usage))
            lacks(file[v], "XL_VERB(" v ") has no .args, the options and arguments of its usage line")
        text = usage[v]
        while (sub(/\[--[^][]*(\[[^][]*\])?[^][]*\]/, "", text)) ;   # what is left of it are arguments
        if (text ~ /[A-Za-z]/ && !(v in most))
            lacks(file[v], "XL_VERB(" v ") has no .max, and its usage line has arguments: " trim(text))
        while (sub(/\[[^][]*\]/, "", text)) ;                 # and of that, those that may not be left out
        if (text ~ /[A-Za-z]/ && !(v in least))
            lacks(file[v], "XL_VERB(" v ") has no .min, and its usage line asks for arguments: " trim(text))
    }
    for (v in file) if (!(v in verb))
        lacks(file[v], "XL_VERB(" v ") has no row: write VERB(" v ") in src/cli/verbs.def, at its place in the help")
    for (p in pass) {
        if (!(p in pass_in))
            lacks("src/pass/passes.def", "PASS(" p ") has no pass: write xl_pass_" p " in src/pass/" p ".c")
        if (!(p in placed)) lacks("src/pass/pipeline.c", "ORDER has no X(" p "): give the pass its place there")
    }
    for (p in pass_in) if (!(p in pass))
        lacks(pass_in[p], "xl_pass_" p " has no row: write PASS(" p ", ASKED) or PASS(" p ", DEVICE) in " \
              "src/pass/passes.def")
    for (p in placed) if (!(p in pass) && !(p in pass_in)) lacks("src/pass/pipeline.c", "ORDER has X(" p "), which passes.def has not")
    for (k in climbed) {
        for (g in kind) if (kind[g] == k) break
        if (k != "PROBE" && kind[g] != k)
            lacks("src/train/rungs.def", "no rung is of kind " k ", whose case is in xl_rung_run: write RUNG(\"name\", " \
                  "\"D\", \"what it adds\", " k ", 0, 0)")
    }
    for (g in kind) {
        if (!(("h", "XL_RUNG_" kind[g]) in seen))
            lacks("src/train/rung.h", "the rung " g " is of kind " kind[g] ": write XL_RUNG_" kind[g] " into xl_rung_kind")
        if (!(("c", "XL_RUNG_" kind[g]) in seen))
            lacks("src/train/rung.c", "the rung " g " is of kind " kind[g] ": write its case in xl_rung_run")
        if (!(("ladder", "XL_RUNG_" kind[g]) in seen))
            lacks("src/cli/ladder.c", "the rung " g " is of kind " kind[g] ": write its case in why_skipped, which says " \
                  "whether a rehearsal (--topology) tries it")
    }
    for (k in strip) if (!(("tile", k) in seen) && !(("tile", "XL_STRIP_" k) in seen))
        lacks("src/cpu/tile/tile_code.c", "nothing uses " k " of strip.def: write the row of its op, with S(" k "), " \
              "in `rows`")
    for (o in op) {
        row_of[ident[o]] = 1
        names["infer_" types[o]]; names["grad_" gradient[o]]; names["shard_" sharding[o]]; names["kernel_" kernel[o]]
        wants(o, "infer", types[o], "RULE(" types[o] ") in src/ir/infer/")
        if (ident[o] in folds && flags[o] !~ /FOLDS/)
            lacks("src/ir/ops.def", o " has its case in src/pass/fold.c, and no FOLDS flag, without which it is not reached")
        wants(o, "grad", gradient[o], "RULE(" gradient[o] ") in src/pass/grad_*.c, or take none")
        wants(o, "shard", sharding[o], "RULE(" sharding[o] ") in src/pass/shard_rule.c")
        wants(o, "kernel", kernel[o], "it in src/cpu/kernel/")
        if (kernel[o] ~ /^(unary|binary|select|clamp)$/ && !(ident[o] in loops))
            lacks("src/cpu/kernel/ew.def", "no row for " o ": write EW(" ident[o] ", its loops for floats, integers and " \
                  "complex numbers)")
        # what follows would be said at the end too, when a change of ops.def costs a second build of most of the tree
        flag = flags[o] ~ /ELEMWISE/; each = sharding[o] == "pointwise" || kernel[o] == "unary" || kernel[o] == "binary"
        if (each && !flag && !(("shaped", o) in covered))
            lacks(ops, o " is pointwise, or its kernel is, but has no ELEMWISE flag (or a line `shaped` in " list ")")
        if (flag && !each) lacks(ops, o " is ELEMWISE, but neither its sharding nor its kernel is")
        if (gradient[o] == "zero" && !(("floatless", types[o]) in covered) && !(("zero", o) in covered))
            lacks(ops, o " has the gradient `zero`: give it one, or its reason in a line `zero` of " list)
        if (kernel[o] == "none" && !(("unserved", o) in covered))
            lacks(ops, o " has the kernel `none`: give it one, or its reason in a line `unserved` of " list)
    }
    for (p in ruled) if (!(p in names))
        lacks(ruled[p], macro[p] " is of no row: write the OP(...) that names it in src/ir/ops.def")
    for (o in loops) if (!(o in row_of))
        lacks("src/cpu/kernel/ew.def", "EW(" o ") is of no op: write OP(" o ", ...) in src/ir/ops.def")
}

END {
    ops = "src/ir/ops.def"; list = "test/ops.covered"
    if (stage == "code") {
        code()
        exit wrong > 0
    }
    for (v in verb) {
        d = verb[v]
        if (v in file) {
            if (!(v in help)) lacks(file[v], "XL_VERB(" v ") has no .help, the line of `xlane --help`")
            if (!(v in example)) lacks(file[v], "XL_VERB(" v ") has no .example, a command that can be typed")
            if (!(v in refuses) && !(file[v] in speaks))
                lacks(file[v], "XL_VERB(" v ") takes --json and never reads cli->json: write one JSON value " \
                      "(xl_cli_put), or set .no_json to the reason")
        }
        if (!(d in shown)) lacks("README.md", "no page shows `xlane " d "`: a row of its table, or a place in docs/")
        if (!(d in called)) lacks("test/", "no script calls \"" d "\": a test in the script of its subject")
        else if (v in file && file[v] in speaks && !(v in refuses) && !(d in reads))
            lacks("test/", "no script reads what \"" d "\" writes with \"--json\", on one line: json.loads() of it")
    }
    for (p in pass) {
        if (!(p in pass_row)) lacks("docs/program.md", "the table of passes has no row for `" p "`")
        if (!(p in tested)) lacks("src/pass/pass_test.c", "no test of the pass " p)
        if (!(p in needs && p in keeps && p in breaks))
            lacks("src/pass/" p ".c", "its first comment must say what it needs:, keeps: and breaks:")
    }
    for (p in pass_row) if (!(p in pass)) lacks("docs/program.md", "a row for `" p "`, which is no pass")
    for (g in rung) if (!(g in rung_row)) lacks("docs/bring-up.md", "the table of rungs does not name " g)
    for (g in rung_row) if (!(g in rung) && g != "probe")
        lacks("docs/bring-up.md", "a row for " g ", which is no rung: write RUNG(\"" g "\", ...) in src/train/rungs.def")
    n = split(order, c, " ")
    if (split(told, names, " ") == n && told != order)     # another number of them was an error already
        lacks("docs/bring-up.md", "its rungs are not in the order of src/train/rungs.def:" order)

    for (k in cause) {
        if (!(("docs/recompiles.md", k) in seen)) lacks("docs/recompiles.md", "the list of causes has no `" k "`")
        if (!(("causes", k) in seen))
            lacks("test/guard/causes.py", "no program has the cause " k ": plant it here, or say `cause: " k "` in a comment " \
                  "at the test that has it")
    }
    for (k in failure) if (!(("errors", k) in seen))
        lacks("test/errors.yaml", "no text of the failure " k ": add one, with what a retry of it can teach")
    for (k in class) {
        if (!(("docs/probe.md", k) in seen)) lacks("docs/probe.md", "nothing says what `" k "` is")
        if (!(("probe", k) in seen)) lacks("test/probe.py", "no probe ends in \"" k "\"")
    }
    for (k in setting) if (setting_row[k] != setting[k]) lacks("docs/profiles.md", "no such row, write it: " setting[k])
    for (k in setting_row) if (!(k in setting)) lacks("docs/profiles.md", "a row for " k ", which profile.def has not")
    for (k in key) {
        d = k
        sub(/.*\./, "", d)
        if (!(("docs/train.md", d) in seen)) lacks("docs/train.md", "nothing says what " k " sets")
    }
    for (k in variable) {
        if (index(variable_row[k], "| " variable[k] " |") == 0)
            lacks("docs/variables.md", "no row for " k " with these words: python3 test/variables.py --fix writes it")
        if (!(k in used) && k !~ /^XLANE_CPU_/) lacks("src/base/variables.def", "a row for " k ", which nothing reads")
    }
    # not variables: a header's guard, the library's symbol version, a name in a usage line
    for (k in used) if (!(k in variable) && k !~ /^XLANE_(CPU_.*|H|VERSION|FILE|X_PASSWORD)$/)
        lacks(used[k], k " has no row: add one to src/base/variables.def, then python3 test/variables.py --fix")

    for (o in op) {
        ours = o ~ /^xlane\./
        has = gradient[o] != "zero" && gradient[o] != "none"
        if (has && !(("gradient", o) in covered))
            lacks(ours ? "test/cases/" : "test/grad_fd.py", "no case for the gradient of " o ": add one, and " \
                  (ours ? "`gradient " o " - test/cases/FILE.mlir` to " : "a line `gradient` to ") list)
        if (kernel[o] != "none" && kernel[o] != "chlo_broadcast" && !(("value", o) in covered))
            lacks(ours ? "test/cases/" : "test/jax_ops.py", "no case compares the values of " o ": add one " \
                  (ours ? "and `value " o " cases/FILE.mlir`" : "there or to test/cases/, and a line `value`") \
                  " to " list)
        if (!has && kernel[o] != "chlo_broadcast" && !(("program", o) in covered))
            lacks(ours ? "test/cases/" : "test/corpus.py", "no program has " o ": add one " \
                  (ours ? "" : "there or to test/forms.mlir, ") "and a line `program` to " list)
    }
    for (t in rule) if (!(("refused", t) in covered))
        lacks("test/verifier_errors.py", "no bad program for the rule " t ": add one, and a line `refused` to " list)
    script["gradient"] = "test/grad_fd.py"; script["value"] = "test/jax_ops.py"; script["program"] = "test/corpus.py"
    script["refused"] = "test/verifier_errors.py"
    for (k in covered) {                                   # a line's case is there, and its program has the op
        split(k, c, SUBSEP)
        o = c[1] == "refused" ? covered[k] : c[2]
        d = k in program_of ? program_of[k] : script[c[1]]
        text = k in program_of || c[1] == "refused" ? o : covered[k]
        if (k in program_of) ;                             # its name as it is
        else if (text == o) sub(/.*\./, "", text)
        else { sub(/\..*/, "", text); sub(/^sdy_/, "", text) }    # grad_fd.py makes sdy_<name>
        if (d ~ /\.mlir$/ && !(d in present)) lacks(d, "no such file, and " list ":" line[k] " names it for " c[2])
        else if (d && text != "-" && !((d, text) in seen))
            lacks(d, "nothing is called " text " here, which " list ":" line[k] " names for " c[2])
        else if (c[1] == "gradient" && k in program_of && !((d, "gradient:") in seen))
            lacks(d, "no line `// gradient:`, by which the gradient of " c[2] " is run")
    }
    for (k in covered) {
        split(k, c, SUBSEP)
        if (c[1] == "refused" || c[1] == "floatless") stale = !(c[2] in rule)
        else if (!(c[2] in op)) stale = 1
        else if (c[1] == "zero") stale = gradient[c[2]] != "zero"
        else if (c[1] == "unserved") stale = kernel[c[2]] != "none"
        else if (c[1] == "value") stale = kernel[c[2]] == "none"
        else stale = 0
        if (c[1] !~ /^(gradient|program|value|refused|zero|unserved|floatless|shaped)$/) stale = 1
        if (stale) lacks(list ":" line[k], c[1] " " c[2] " is of no row of " ops)
    }
    exit wrong > 0
}
