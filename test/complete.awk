# What belongs to a row of a table and no compiler sees. `make` runs this when a file that it reads has changed, and
# fails with what is missing and the file that wants it. docs/architecture.md says how to add each thing.
#   awk -f test/complete.awk TABLES test/ops.covered src/cli/*.c src/pass/*.c docs/*.md README.md test/*.py
function lacks(file, what) { print file ": error: " what; wrong++ }
function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

# ---- the tables ----
/^OP\(/ && FILENAME ~ /ops\.def$/ {
    split(substr($0, 4), c, ",")
    name = trim(c[2]); gsub(/"/, "", name)
    if (name == "") next                                   # what is unknown
    op[name] = 1; rule[trim(c[6])] = 1
    types[name] = trim(c[6]); gradient[name] = trim(c[7]); sharding[name] = trim(c[8]); kernel[name] = trim(c[9])
    flags[name] = c[10]
}
/^VERB\(/ && FILENAME ~ /verbs\.def$/ { split($0, c, /[()]/); verb[c[2]] = c[2]; gsub(/_/, "-", verb[c[2]]) }
/^PASS\(/ && FILENAME ~ /passes\.def$/ { split($0, c, /[(,]/); pass[c[2]] = 1 }
/^RUNG\(/ && FILENAME ~ /rungs\.def$/ {
    split($0, c, /"/)
    rung[c[2]] = 1
    if (/(TRAIN|SCAN),[ \t]*1(\.0*)?f?,[ \t]*1(\.0*)?f?\)/)
        lacks(FILENAME ":" FNR, "the losses of " c[2] " are 1: build/venv/bin/python test/_rungs.py " c[2] " computes them")
}
FILENAME ~ /ops\.covered$/ && /^[a-z]/ {
    if (($1, $2) in covered) lacks(FILENAME ":" FNR, $1 " " $2 " stands here twice")
    covered[$1, $2] = $3; line[$1, $2] = FNR
    if (NF < 3 && $1 != "floatless" || $3 == "-" && NF < 4) lacks(FILENAME ":" FNR, $0 ": a name or a reason is missing")
}

# ---- verbs and passes in C ----
FILENAME ~ /^src\/cli\// {
    if ($0 ~ /->json/) speaks[FILENAME] = 1
    if (match($0, /^XL_VERB\([a-z_]+\)/)) { at = substr($0, 9, RLENGTH - 9); file[at] = FILENAME }
    if (at && $0 ~ /\.help[ \t]*=/) help[at] = 1
    if (at && $0 ~ /\.example[ \t]*=/) example[at] = 1
    if (at && $0 ~ /\.no_json[ \t]*=/) refuses[at] = 1
    if ($0 ~ /^};/) at = ""
}
FILENAME ~ /^src\/pass\// && FNR == 1 { n = split(FILENAME, c, /[\/.]/); of = c[n - 1]; essay = 1 }
FILENAME ~ /^src\/pass\// && essay {
    if ($0 ~ /needs:/) needs[of] = 1
    if ($0 ~ /keeps:/) keeps[of] = 1
    if ($0 ~ /breaks:/) breaks[of] = 1
    if ($0 ~ /\*\//) essay = 0
}
FILENAME ~ /pass_test\.c$/ {
    text = $0
    gsub(/[^a-z_]+/, " ", text)
    n = split(text, c, " ")
    for (i = 1; i <= n; i++) { sub(/^xl_pass_/, "", c[i]); tested[c[i]] = 1 }
}

# ---- documentation and tests ----
FILENAME ~ /\.md$/ {
    if (FILENAME ~ /\/program\.md$/ && /^\| pass \|/ || FILENAME ~ /\/bring-up\.md$/ && /^\| rung \|/) table = $2
    else if (!/^\|/) table = ""
    else if (table == "pass" && $2 ~ /^`/) { w = $2; gsub(/`/, "", w); pass_row[w] = 1 }
    else if (table == "rung" && !/^\|-/) {
        split($0, c, "|")
        n = split(c[2], names, ",")
        for (i = 1; i <= n; i++) rung_row[trim(names[i])] = 1
    }
    text = $0
    if (text ~ /`/ || text ~ /^[ \t]*(\$ )?xlane /)
        while (i = index(text, "xlane ")) {
            text = substr(text, i + 6)
            if (match(text, /^[a-z-]+/)) shown[substr(text, 1, RLENGTH)] = 1
        }
}
FILENAME ~ /\.py$/ {
    text = $0
    while (match(text, /"[a-z-]+"/)) {
        called[substr(text, RSTART + 1, RLENGTH - 2)] = 1
        text = substr(text, RSTART + RLENGTH - 1)
    }
}

END {
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
    }
    for (p in pass) {
        if (!(p in pass_row)) lacks("docs/program.md", "the table of passes has no row for `" p "`")
        if (!(p in tested)) lacks("src/pass/pass_test.c", "no test of the pass " p)
        if (!(p in needs && p in keeps && p in breaks))
            lacks("src/pass/" p ".c", "its first comment must say what it needs:, keeps: and breaks:")
    }
    for (p in pass_row) if (!(p in pass)) lacks("docs/program.md", "a row for `" p "`, which is no pass")
    for (g in rung) if (!(g in rung_row)) lacks("docs/bring-up.md", "the table of rungs does not name " g)
    for (g in rung_row) if (!(g in rung) && g != "probe") lacks("docs/bring-up.md", "a row for " g ", which is no rung")

    ops = "src/ir/ops.def"; list = "test/ops.covered"
    for (o in op) {
        flag = flags[o] ~ /ELEMWISE/; each = sharding[o] == "pointwise" || kernel[o] == "unary" || kernel[o] == "binary"
        if (each && !flag && !(("shaped", o) in covered))
            lacks(ops, o " is pointwise, or its kernel is, but has no ELEMWISE flag (or a line `shaped` in " list ")")
        if (flag && !each) lacks(ops, o " is ELEMWISE, but neither its sharding nor its kernel is")
        if (gradient[o] == "zero" && !(("floatless", types[o]) in covered) && !(("zero", o) in covered))
            lacks(ops, o " has the gradient `zero`: give it one, or its reason in a line `zero` of " list)
        has = gradient[o] != "zero" && gradient[o] != "none"
        if (has && !(("gradient", o) in covered))
            lacks("test/grad_fd.py", "no case for the gradient of " o ": add one, and a line `gradient` to " list)
        if (kernel[o] != "none" && kernel[o] != "chlo_broadcast" && !(("value", o) in covered))
            lacks("test/jax_ops.py", "no case compares the values of " o ": add one there or to test/cases/, and a line " \
                  "`value` to " list)
        if (!has && kernel[o] != "chlo_broadcast" && !(("program", o) in covered))
            lacks("test/corpus.py", "no program has " o ": add one there or to test/forms.mlir, and a line " \
                  "`program` to " list)
    }
    for (t in rule) if (!(("refused", t) in covered))
        lacks("test/verifier_errors.py", "no bad program for the rule " t ": add one, and a line `refused` to " list)
    for (k in covered) {
        split(k, c, SUBSEP)
        if (c[1] == "refused" || c[1] == "floatless") stale = !(c[2] in rule)
        else if (!(c[2] in op)) stale = 1
        else if (c[1] == "zero") stale = gradient[c[2]] != "zero"
        else stale = 0
        if (c[1] !~ /^(gradient|program|value|refused|zero|floatless|shaped)$/) stale = 1
        if (stale) lacks(list ":" line[k], c[1] " " c[2] " is of no row of " ops)
    }
    exit wrong > 0
}
