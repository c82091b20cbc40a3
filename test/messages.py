"""What commands say when something is wrong: exit status, the sentence and its next step, and what must not be said. A row per message."""
import glob, gzip, json, os, re, shutil, subprocess, sys, tempfile
import _check
from _check import check, end

_check.prefix = "WM_"

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("XLANE_BUILD", os.path.join(HERE, "..", "build")))
XLANE = os.path.join(BUILD, "xlane")
TMP = tempfile.mkdtemp(prefix="xlane-messages-")
KEEP = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "LIBTPU_", "PJRT_", "TPU_", "JAX_", "PT_XLA_",
    "XLANE_")) and k != "VIRTUAL_ENV"}
ENV = dict(KEEP, XDG_CONFIG_HOME=TMP + "/config", XLANE_STATE=TMP + "/state", XLANE_CACHE=TMP + "/cache",
           TPU_SKIP_MDS_QUERY="1", XLANE_PLUGIN="cpu")
TINY = ["data.train=book.txt", "model.pattern=D", "model.dim=8", "model.heads=1", "optimizer.warmup=0", "train.steps=2",
        "train.eval_every=0"]


def write(name, text):
    path = os.path.join(TMP, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    return path


def xlane(*args, env=None, stdin=""):
    e = dict(ENV, **{k: v for k, v in (env or {}).items() if v is not None})
    for k in [k for k, v in (env or {}).items() if v is None]:
        e.pop(k, None)
    p = subprocess.run([XLANE, *args], capture_output=True, text=True, errors="replace", env=e, cwd=TMP, timeout=300,
                       input=stdin)
    return p.returncode, p.stdout + p.stderr


write("book.txt", "the quick brown fox jumps over the lazy dog. " * 200)
write("empty.yaml", "")
write("script.py", "")
write("pass.py", "")
write("b4.yaml", "inherits: b4\n")
write("cpu.yaml", "inherits: cpu\n")
write("large.yaml", "shapes:\n  warmup: 99999999999999999999\n")
write("word.yaml", "shapes:\n  warmup: few\n")
write("scr ipt.py", "")
write("add it.gz", "")
write("afile", "")
write("open.yaml", "data:\n  train: [a, b\nmodel:\n  dim: 3\n")
write("tab.yaml", "data:\n  train: book.txt: x\n")
write("typo.yaml", "data:\n  train: book.txt\noptimiser:\n  lr: 1\n")
write("add.mlir", "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.add %x, %x : tensor<f32>\n  return %0 : tensor<f32>\n}\n")
write("call.mlir", "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.custom_call @nope(%x) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n")
write("bad.mlir", "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.nonsense %x : tensor<f32>\n  return %0 : tensor<f32>\n}\n")
# One libtpu that two paths lead to, as lib64 -> lib does in a virtual environment. It is never opened: no device file
# is here.
write("venv/lib/python3.11/site-packages/libtpu/libtpu.so", "")
os.symlink("lib", TMP + "/venv/lib64")
for packed in "add.mlir.gz", "add it.gz":
    with open(TMP + "/add.mlir", "rb") as f, open(TMP + "/" + packed, "wb") as g:
        g.write(gzip.compress(f.read()))
with open(TMP + "/add.mlir", "rb") as f, open(TMP + "/add.mlir.zst", "wb") as g:
    data = f.read()                                        # a frame of one raw block
    g.write(b"\x28\xb5\x2f\xfd\x20" + bytes([len(data)]) + (len(data) << 3 | 1).to_bytes(3, "little") + data)
NOHOME = {"HOME": "/dev/null", "XLANE_STATE": None, "XLANE_CACHE": None, "XDG_STATE_HOME": None, "XDG_CACHE_HOME": None}

# name, command, exit status, said, not said, and what xlane() takes besides
ROWS = [
    ("train_where_no_folder_can_be_made", ["train", *TINY, "runs=afile/x"], 1, ["--runs=DIR"], []),
    ("train_takes_runs", ["train", *TINY, "--quiet", "--runs", "elsewhere"], 0, ["elsewhere/"], []),
    ("run_where_no_folder_can_be_made", ["run", "--runs=afile/x", "--cache=off", "--", "true"], 1, ["--runs=DIR"], []),
    ("a_rate_too_large", ["train", *TINY, "optimizer.lr=1e30"], 2, ["optimizer.lr is 1e+30", "below 1e+30"],
     ["that is at least 0\n"]),
    ("a_rate_below_zero", ["train", *TINY, "optimizer.lr=-1"], 2, ["optimizer.lr is -1", "of at least 0"], []),
    ("run_without_a_home", ["run", "--", "true"], 0, ["no cache of executables", "--cache=DIR"], [], {"env": NOHOME}),
    ("run_without_a_home_or_a_cache", ["run", "--cache=off", "--", "true"], 0, [], ["/dev/null"], {"env": NOHOME}),
    ("calibrate_without_a_home", ["calibrate", *TINY], None, ["not kept in the catalog", "XLANE_CATALOG=DIR",
        "observed"], [], {"env": NOHOME}),
    ("calibrate_with_a_home", ["calibrate", *TINY], None, ["observed"], ["not kept"]),
    ("rehearse_without_a_home", ["rehearse", "--plugin=cpu", "--topology=xlane:1", "add.mlir"], 0,
     ["fits:", "not kept in the catalog", "XLANE_CATALOG=DIR"], [], {"env": NOHOME}),
    ("lock_where_it_cannot_be_written", ["lock", "write", "--file=/nope/x.lock"], 1, ["--file=PATH"], []),
    ("lock_restore_is_no_json", ["lock", "restore", "--print", "--json"], 2, ["shell script, not JSON"],
     ["pip install"]),
    ("a_cache_that_is_not_there", ["cache", "ls", "--cache", "/nope"], 1,
     ["there is no cache folder /nope", "xlane run --cache=/nope", "--cache=DIR"], []),
    ("a_cache_with_a_space_in_its_name", ["cache", "ls", "--cache", "/no pe"], 1,
     ["`xlane run --cache='/no pe' -- CMD`"],
     []),
    ("a_plugin_with_a_space_in_its_name", ["exec", "add.mlir", "--plugin=/no pe.so"], 1,
     ["`xlane probe --plugin='/no pe.so'` says"], []),
    ("a_packed_program_with_a_space_in_its_name", ["print", "add it.gz"], 1, ["gunzip -k 'add it.gz'"], []),
    ("a_script_with_a_space_in_its_name", ["run", "--cache=off", "scr ipt.py"], 127, ["`python 'scr ipt.py'`?"], []),
    ("a_config_that_is_not_there", ["train", "nofile.yaml"], 1, ["nofile.yaml", "xlane train data.train=",
        "docs/train.md"], []),
    ("exec_of_no_program", ["exec", "/bin/ls"], 1, ["ls is not a program", "StableHLO text, MLIR bytecode"],
     ["wire type"]),
    ("print_of_no_program", ["print", "/bin/ls"], 1, ["/bin/ls is not a program", "a RUN"], ["wire type"]),
    ("print_of_a_wrong_program", ["print", "bad.mlir"], 1, ["line 2", "nonsense"], ["not a program"]),
    ("exec_of_an_empty_config", ["exec", "empty.yaml"], 2, ["data.train is not set", "data.train=book.txt"], []),
    ("exec_of_a_config_with_settings", ["exec", "empty.yaml", *TINY, "--show=1"], 0, ["compiled in"], []),
    ("version_as_a_word", ["version"], 0, ["xlane "], ["there is no verb"]),
    ("run_of_no_command", ["run", "--cache=off", "--", "/no/such/program"], 127,
     ["/no/such/program: No such file or directory; nothing ran: check the command and its path"],
     ["loaded a PJRT plugin"]),
    ("run_that_fails_before_a_device", ["run", "--runs=failing", "--cache=off", "--", sys.executable, "-c",
        "import no_such_module"], 1,
     ["it ended with status 1, and no process of it had loaded a PJRT plugin", "so no compile was recorded",
      "if it failed, its own output may say why"],
     ["static or setuid", "nothing was recorded", "says why"]),
    ("explain_of_a_command_that_failed", ["explain", "last"], 1,
     ["compiles were not recorded: its command ended with exit status 1 before it had loaded a PJRT plugin"],
     ["takes the embedded device"], {"env": {"XLANE_RUNS": "failing"}}),
    ("run_of_a_script", ["run", "--cache=off", "script.py"], 127,
     ["script.py: this is a file here, not a command; nothing ran: did you mean `python script.py`?"], ["recorded in"]),
    ("run_of_a_script_by_its_path", ["run", "--cache=off", "./script.py"], 126,
     ["./script.py: this file is not executable; nothing ran: did you mean `python ./script.py`?"], ["recorded in"]),
    ("a_command_that_cannot_start_is_no_run", ["run", "--runs=unmade", "--cache=off", "no-such-command"], 127,
     ["no-such-command: No such file or directory; nothing ran"], []),
    ("and_left_no_folder", ["run", "--cache=off", "--", "ls"], 0, ["book.txt"], ["unmade"]),
    ("run_with_a_profile_without_a_device", ["run", "--profile=cpu", "--cache=off", "--", sys.executable, "-c", "pass"],
     0,
     ["no process of this run loaded a PJRT plugin under the guard"], ["--profile=cpu` takes"]),
    ("a_run_is_called_after_its_script", ["run", "--summary", "--cache=off", "--", "timeout", "60", sys.executable,
                                          "pass.py"],
     0, ["-pass.py\n"], []),
    ("explain_where_there_are_no_runs", ["explain", "elsewhere/nowhere"], 2,
     ["no run folder called 'elsewhere/nowhere', and no runs in", "`xlane run -- CMD` makes one"], ["ls "],
     {"env": {"XLANE_RUNS": "/nope/runs"}}),
    ("a_log_level_that_is_none", ["run", "--cache=off", "--", "echo", "it ran"], 2,
     ["XLANE_LOG=banana: not one of: off error warn info debug: change it, or unset it"], ["it ran"],
     {"env": {"XLANE_LOG": "banana"}}),
    ("a_variable_that_is_no_number", ["runs"], 2, ["XLANE_WATCH_AFTER=few: not a number of at least 0"], [],
     {"env": {"XLANE_WATCH_AFTER": "few"}}),
    ("a_log_level", ["run", "--cache=off", "--", "echo", "it ran"], 0, ["it ran"], ["not one of"],
     {"env": {"XLANE_LOG": "info", "XLANE_GUARD": "on", "XLANE_AHEAD": "", "XLANE_CACHE_MAX": "16MiB"}}),
    ("grad_of_a_packed_program", ["grad", "add.mlir.zst"], 0, ["func.func"], ["wire type"]),
    ("grad_of_what_another_packer_wrote", ["grad", "add.mlir.gz"], 1,
     ["add.mlir.gz is packed with gzip", "unpack it first: gunzip -k add.mlir.gz"], ["wire type", "byte"]),
    ("print_of_what_another_packer_wrote", ["print", "add.mlir.gz"], 1, ["packed with gzip"], ["not a program"]),
    ("grad_of_no_program", ["grad", "/bin/ls"], 1, ["ls is not a program"], ["wire type"]),
    ("a_run_of_no_name", ["explain", ""], 2, ["an empty name; `last` is the newest, `xlane runs` lists them"],
     ["none in"]),
    ("runs_of_no_folder", ["runs", ""], 2, ["the name of the folder is empty"], ["no folder  here"]),
    ("run_with_runs_of_no_name", ["run", "--runs=", "--cache=off", "--", "true"], 2,
     ["--runs is empty: give it a value, --runs=DIR"],
     ["0 bytes"]),
    ("run_with_an_empty_policy", ["run", "--policy=", "--cache=off", "--", "true"], 2,
     ["--policy is empty: give it a value, --policy=WORD, or leave it out"], ["not \n"]),
    ("run_with_an_empty_watch", ["run", "--watch=", "--cache=off", "--", "true"], 2, ["--watch is empty"], ["PJRT"]),
    ("an_empty_prompt_is_one", ["sample", "--prompt=", "nowhere"], 2, ["no run folder called 'nowhere'"], ["is empty"]),
    ("a_cache_of_no_size", ["run", "--cache-max=0", "--", "true"], 2,
     ["--cache-max takes a size above 0, such as 64MiB, not '0'"], ["PJRT"]),
    ("a_warmup_of_no_compile", ["run", "--warmup-compiles=0", "--cache=off", "--", "true"], 2,
     ["--warmup-compiles takes a whole number of at least 1, not '0'"], ["PJRT"]),
    ("top_of_an_option_unlike_any", ["top", "--nonsense"], 2,
     ["top: there is no option --nonsense; --help lists the options"], ["did you mean"]),
    ("top_of_an_option_misspelt", ["top", "--onse"], 2, ["did you mean --once?"], []),
    ("exec_writes_where_a_file_is", ["exec", "add.mlir", "--outputs=afile"], 1,
     ["afile is a file; --outputs=DIR names another"], []),
    ("exec_on_no_plugin", ["exec", "add.mlir", "--plugin=/nope.so"], 1,
     ["/nope.so: no such file; `xlane probe --plugin=/nope.so` says what to do"], []),
    ("grad_of_no_file", ["grad", "/nope/x.mlir"], 1, ["No such file or directory; check its path"], []),
    ("grad_of_a_folder", ["grad", "elsewhere"], 1, ["elsewhere is a folder; name a file"], ["check its path"]),
    ("train_of_a_folder", ["train", "elsewhere"], 2, ["elsewhere is a folder; name a file"], []),
    ("train_prints_nothing_such", ["train", "--print=banana", *TINY], 2, ["--print is loss, step or eval, not banana"],
     []),
    ("a_cache_to_list_that_is_a_file", ["cache", "ls", "--cache=afile"], 1,
     ["afile is a file, and a cache is a folder; --cache=DIR names another"], ["chmod"]),
    ("a_cache_exported_into_a_folder", ["cache", "export", "elsewhere", "--cache=cache"], 1,
     ["writing elsewhere: it is a folder; `xlane cache export FILE` writes another"], []),
    ("a_cache_imported_from_nowhere", ["cache", "import", "/nope/x", "--cache=cache"], 1,
     ["No such file or directory; check its path"], []),
    ("sharding_of_a_run_takes_no_settings", ["sharding", "last", "mesh=4"], 2,
     ["'mesh=4': settings (key=value) belong to a configuration"], ["several devices"]),
    ("sharding_of_a_run", ["sharding", "last"], 0, ["several devices"], ["settings"]),
    ("sample_below_zero", ["sample", "--tokens=-2", "x"], 2, ["--tokens takes a whole number of at least 0"], []),
    ("reduce_of_what_is_fine", ["reduce", "--keep=fails", "add.mlir"], 1,
     ["does not do that on cpu: it runs; --plugin=PATH names where it does"], []),
    ("ranks_joined_to_their_option", ["run", "-n2", "--cache=off", "--", "sh", "-c", "echo rank $XLANE_RANK"], 0,
     ["[0] rank 0", "[1] rank 1"], ["two dashes"]),
    ("ranks_with_an_equals_sign", ["run", "-n=2", "--cache=off", "--", "sh", "-c", "echo rank $XLANE_RANK"], 0,
     ["[0] rank 0", "[1] rank 1"], ["two dashes"]),
    ("no_number_of_ranks", ["run", "-n=x", "--", "true"], 2, ["-n takes a whole number, not 'x'"], ["--n"]),
    ("a_word_after_one_dash", ["run", "-name", "x", "--", "true"], 2, ["'-name': options are written out here"], []),
    ("a_variable_misspelt", ["runs"], None, ["_RNUS is set, and there is no such variable: did you mean XLANE_RUNS?"],
     ["XLANE_CACHE is"], {"env": {"XLANE" + "_RNUS": "x"}}),
    ("a_device_variable_misspelt", ["exec", "add.mlir", "--plugin=cpu"], 1,
     ["XLANE_CPU_DEVICE: the device has no such variable: did you mean XLANE_CPU_DEVICES?"], [],
     {"env": {"XLANE_CPU_DEVICE": "4"}}),
    ("a_variable_like_no_other", ["runs"], None, ["_BLUE is set, and there is no such variable; docs/variables.md"],
     ["did you mean"], {"env": {"XLANE" + "_BLUE": "x"}}),
    ("variables_that_are_known", ["runs"], None, [], ["no such variable"], {"env": {"XLANE_CPU_DEVICES": "2"}}),
    ("runs_in_a_file", ["runs", "afile"], 1, ["afile is a file, and runs are kept in a folder; XLANE_RUNS=DIR names"],
     []),
    ("a_run_in_a_file", ["explain", "x"], 1, ["afile is a file, and runs are kept in a folder; XLANE_RUNS=DIR names"],
     ["makes one"], {"env": {"XLANE_RUNS": "afile"}}),
    ("a_receipt_in_a_file", ["receipt", "show"], 1, ["afile is a file, and runs are kept in a folder"], ["last is not"],
     {"env": {"XLANE_RUNS": "afile"}}),
    ("a_log_that_cannot_be_read", ["classify", "/proc/self/mem"], 1,
     ["reading /proc/self/mem", "`tail -n 1000 LOG | xlane"],
     []),
    ("a_cache_exported_nowhere", ["cache", "export", "--cache=cache"], 2, ["takes a file: xlane cache export FILE"],
     []),
    ("replay_of_no_capture", ["replay", "script.py"], 1, ["is no capture; `xlane run --capture=step:10 -- CMD` makes"],
     []),
    ("exec_no_times", ["exec", "--times=0", "add.mlir"], 2, ["--times takes a whole number of at least 1"], []),
    ("a_cache_that_is_a_file", ["run", "--cache=afile", "--", "echo", "it ran"], 1,
     ["/afile is a file, and a cache is a folder; --cache=DIR names another folder"], ["it ran", "chmod"]),
    ("a_cache_that_is_a_device", ["run", "--", "echo", "it ran"], 1,
     ["/dev/null is a file, and a cache is a folder; --cache=DIR"],
     ["it ran", "chmod"], {"env": {"XLANE_CACHE": "/dev/null"}}),
    ("no_cache_by_name", ["run", "--", "echo", "it ran"], 0, ["it ran"], ["is a file"],
     {"env": {"XLANE_CACHE": "off"}}),
    ("counters_for_no_folder", ["run", "--prometheus=/nope/x.prom", "--cache=off", "--", "echo", "it ran"], 1,
     ["--prometheus: making a temporary file for /nope/x.prom: No such file", "--prometheus=FILE names another"],
     ["it ran"]),
    ("counters_for_a_folder", ["run", "--prometheus=elsewhere", "--cache=off", "--", "echo", "it ran"], 1,
     ["--prometheus: writing elsewhere: it is a folder; --prometheus=FILE"], ["it ran"]),
    ("counters_for_a_device", ["run", "--prometheus=/dev/null", "--cache=off", "--", "echo", "it ran"], 1,
     ["--prometheus: writing /dev/null: it is no plain file; --prometheus=FILE"], ["it ran"]),
    ("counters_for_a_file", ["run", "--prometheus=x.prom", "--cache=off", "--", "echo", "it ran"], 0, ["it ran"],
     ["--prometheus"]),
    ("runs_that_were_named_must_be_there", ["run", "--runs=afile/x", "--cache=off", "--", "echo", "it ran"], 1,
     ["xlane: making the folder afile/x: afile is a file; --runs=DIR names another"], ["it ran", "not recorded"]),
    ("and_so_must_those_of_the_variable", ["run", "--cache=off", "--", "echo", "it ran"], 1,
     ["xlane: making the folder afile/x: afile is a file; --runs=DIR names another"], ["it ran", "not recorded"],
     {"env": {"XLANE_RUNS": "afile/x"}}),
    ("run_takes_the_folder_of_the_variable", ["run", "--summary", "--cache=off", "--", "true"], 0,
     ["recorded in " + TMP + "/by-variable/"], [], {"env": {"XLANE_RUNS": "by-variable"}}),
    ("where_the_others_find_it", ["runs"], 0, ["-true "], ["no folder"], {"env": {"XLANE_RUNS": "by-variable"}}),
    ("train_takes_the_folder_of_the_variable", ["train", *TINY, "--quiet"], 0, ["train-by-variable/"], [],
     {"env": {"XLANE_RUNS": "train-by-variable"}}),
    ("no_checkpoints_of_what_is_no_training", ["checkpoint", "verify", "last"], 1, ["`xlane train` makes one"],
     ["0 bad"], {"env": {"XLANE_RUNS": "by-variable"}}),
    ("checkpoints_of_a_training", ["checkpoint", "verify", "last"], 0, ["0 bad"], ["makes one"],
     {"env": {"XLANE_RUNS": "train-by-variable"}}),
    ("calibrate_last_without_runs", ["calibrate", "last"], 1, ["`xlane run -- CMD` makes it"], ["data.train="],
     {"env": {"XLANE_RUNS": "/nope/runs"}}),
    ("run_without_a_device", ["run", "--cache=off", "--", sys.executable, "-c", "pass"], 0,
     ["no process of this run loaded a PJRT plugin under the guard: it used none"], ["had loaded no"]),
    ("warmup_below_zero", ["run", "--warmup=-1", "--cache=off", "--", "true"], 2,
     ["--warmup takes a whole number of at least 0, not '-1'"], []),
    ("a_warmup_too_large", ["run", "--warmup=99999999999999999999", "--cache=off", "--", "true"], 2,
     ["--warmup: 99999999999999999999 is too large (at most 9223372036854775807)"], ["whole number"]),
    ("a_warmup_with_an_exponent", ["run", "--warmup=1e400", "--cache=off", "--", "true"], 2, ["1e400 is too large"],
     []),
    ("a_warmup_that_is_a_word", ["run", "--warmup=few", "--cache=off", "--", "true"], 2,
     ["--warmup takes a whole number of at least 0, not 'few'"], ["too large"]),
    ("a_warmup_of_infinity", ["run", "--warmup=inf", "--cache=off", "--", "true"], 2, ["not 'inf'"], ["too large"]),
    ("steps_too_many", ["train", *TINY, "train.steps=99999999999999999999"], 2,
     ["train.steps: 99999999999999999999 is too large (at most 9223372036854775807)"], ["whole number", "1e+30"]),
    ("a_dimension_too_large", ["train", *TINY, "model.dim=9223372036854775807"], 2,
     ["model.dim: 9223372036854775807 is too large (at most 2147483647)"], ["1e+30"]),
    ("a_dimension_with_an_exponent", ["train", *TINY, "model.dim=1e9"], 2,
     ["model.dim: '1e9' is not written as a whole number: write 1000000000"], []),
    ("a_dimension_that_is_a_word", ["train", *TINY, "model.dim=wide"], 2,
     ["model.dim: 'wide' is not a whole number; as in model.dim=128, the default"],
     ["too large"]),
    ("a_rate_that_is_no_number", ["train", *TINY, "optimizer.lr=1e-3x"], 2,
     ["optimizer.lr: '1e-3x' is not a number; as in optimizer.lr=0.003, the default"], []),
    ("a_list_that_is_not_closed", ["train", "open.yaml"], 2,
     ["open.yaml:2:10: while parsing a flow sequence", "; it shows at line 3"], ["open.yaml:3"]),
    ("a_mistake_in_its_own_line", ["train", "tab.yaml"], 2, ["tab.yaml:2:"], ["it shows at"]),
    ("a_device_like_no_other", ["train", *TINY, "--device=gpuu"], 2,
     ["--device: there is no plugin 'gpuu', and no file of that name here; cpu, cuda, rocm and tpu are known"],
     ["did you mean", "./gpuu"]),
    ("a_device_by_its_key", ["train", *TINY, "device=cda"], 2, ["device: there is no plugin 'cda'", "mean 'cuda'?"],
     []),
    ("a_device_that_there_is", ["train", *TINY, "--device=cpu", "--profile=cpu"], 0, ["step 2, loss"], []),
    ("a_training_profile_like_no_other", ["train", *TINY, "--profile=gpuu"], 2,
     ["--profile: there is no profile 'gpuu'; there are "], []),
    ("no_steps", ["train", *TINY, "train.steps=0"], 2, ["train.steps is 0: it takes a number of at least 1"],
     ["1e+30"]),
    ("a_profile_with_a_number_too_large", ["profile", "show", "./large.yaml"], 1,
     ["large.yaml:2", "99999999999999999999 is too large (at most 9223372036854775807)"], ["whole number"]),
    ("a_profile_with_no_number", ["profile", "show", "./word.yaml"], 1, ["a whole number, zero or more, was expected"],
     ["too large"]),
    ("a_variable_too_large", ["runs"], 2, ["XLANE_WATCH_AFTER: 99999999999999999999 is too large (at most"],
     ["not a number"], {"env": {"XLANE_WATCH_AFTER": "99999999999999999999"}}),
    ("a_verb_like_no_other", ["foo"], 2, ["there is no verb 'foo'; `xlane --help` lists the verbs"], ["did you mean"]),
    ("a_verb_misspelt", ["prob"], 2, ["did you mean 'probe'?"], []),
    ("a_profile_by_another_word", ["run", "--profile=GPU", "--cache=off", "--", "true"], 2, ["did you mean 'cuda'?"],
     ["'cpu'"]),
    ("a_profile_by_its_card", ["profile", "show", "h100"], 1, ["did you mean 'cuda'?"], []),
    ("a_profile_like_no_other", ["profile", "show", "foo"], 1, ["there is no profile 'foo'; there are "],
     ["did you mean"]),
    ("a_profile_misspelt", ["profile", "show", "cdua"], 1, ["there is no profile 'cdua'"], ["'cpu'?"]),
    ("a_profile_that_inherits_itself", ["profile", "show", "./b4.yaml"], 1,
     ["b4.yaml:1", "'b4' inherits itself"], ["did you mean", "there is no profile"]),
    ("a_profile_that_extends_another_of_its_name", ["profile", "show", "./cpu.yaml"], 0, ["cpu.yaml"],
     ["inherits itself"]),
    ("a_profile_that_compiles_nothing_else", ["profile", "show", "cpu"], 0, ["cpu: the embedded device"], ["@none"]),
    ("a_profile_that_sets_flags", ["profile", "show", "cuda"], 0, ["cuda@"], ["@none"]),
    ("exec_of_what_is_no_number", ["exec", "add.mlir", "--plugin=cpu", "--input=0=abc"], 2,
     ["--input=0=abc: 'abc' is no number; a file is @FILE"], []),
    ("exec_of_no_such_argument", ["exec", "add.mlir", "--plugin=cpu", "--input=9=1"], 2, ["arguments 0 to 0"], []),
    ("exec_of_a_number", ["exec", "add.mlir", "--plugin=cpu", "--input=0=3"], 0, ["out0 f32[] 6"], []),
    ("exec_prints_infinity", ["exec", "add.mlir", "--plugin=cpu", "--input=0=-inf", "--json"], 0, ['"-inf"'], ["null"]),
    ("exec_prints_no_number", ["exec", "add.mlir", "--plugin=cpu", "--input=0=nan", "--json"], 0, ['"nan"'], ["null"]),
    ("exec_prints_a_number", ["exec", "add.mlir", "--plugin=cpu", "--input=0=3", "--json"], 0, ['"values"'],
     ['"nan"', '"inf"']),
    ("capture_of_step_zero", ["run", "--capture=step:0", "--cache=off", "--", "true"], 2,
     ["--capture=step:0: it is step:N, and N starts at 1"], []),
    ("capture_of_no_such_time", ["run", "--capture=banana", "--cache=off", "--", "true"], 2,
     ["--capture is nonfinite, step:N, signal or slow, not banana"], ["starts at 1"]),
    ("candidates_without_retries", ["run", "--smaller=--n 4", "--smaller=--n 2", "--cache=off", "--", "true"], 0,
     ["--smaller without --retries", "--retries=2 tries all"], []),
    ("candidates_with_retries", ["run", "--smaller=--n 4", "--retries=1", "--cache=off", "--", "true"], 0, [],
     ["without --retries"]),
    ("train_without_a_home", ["train", *TINY, "--quiet", "runs=homeless"], 0,
     ["no cache of executables: HOME is not set; cache=DIR names a folder for it"], [],
     {"env": dict(NOHOME, HOME=None)}),
    ("train_without_a_home_or_a_cache", ["train", *TINY, "--quiet", "runs=homeless", "cache=off"], 0, [],
     ["no cache of executables"], {"env": dict(NOHOME, HOME=None)}),
    ("train_with_a_home", ["train", *TINY, "--quiet", "runs=homeless"], 0, [], ["no cache of executables"]),
    ("train_of_a_text", ["train", "book.txt"], 2,
     ["to train on it as a text: xlane train data.train=book.txt"], []),
    ("train_of_a_configuration_that_is_wrong", ["train", "typo.yaml"], 2, ["typo.yaml:4"], ["as a text"]),
    ("man_of_the_command", ["man", "--troff", "xlane"], 0, [".SH VERBS"], ["there is no verb"]),
    ("man_of_a_page", ["man", "--troff", "xlane-run"], 0, ["xlane\\-run"], ["there is no verb"]),
    ("man_of_no_verb", ["man", "--troff", "xlane-foo"], 2,
     ["there is no verb 'xlane-foo'; `xlane --help` lists the verbs"], []),
    ("hang_below_zero", ["run", "--hang=-1", "--cache=off", "--", "true"], 2,
     ["--hang takes a number of seconds, from 0 to 1e9, not '-1'"], []),
    ("hang_for_ever", ["run", "--hang=inf", "--cache=off", "--", "true"], 2, ["from 0 to 1e9, not 'inf'"], []),
    ("hang_of_part_of_a_second", ["run", "--hang=0.4", "--cache=off", "--", "sh", "-c", "echo is $XLANE_HANG"], 0,
     ["is 1\n"], []),
    ("a_name_as_long_as_no_folder", ["run", "--summary", "--cache=off", "--name", "x" * 300, "--", "true"], 0,
     ["-" + "x" * 100 + "\n"], ["not recorded", "x" * 101]),
    ("metrics_of_a_run_without_a_device", ["metrics", "last"], 1,
     ["has no metrics: no process of it loaded a PJRT plugin; on this machine's CPU, `xlane run --profile=cpu -- CMD`"],
     ["ended before"]),
    ("retries_below_zero", ["run", "--retries=-2", "--cache=off", "--", "true"], 2,
     ["--retries takes a whole number of at least 0"], []),
    ("an_unknown_failure", ["classify", "-"], 1,
     ["unknown: ", "the whole log of every rank", "no retry by itself: what failed is not known"],
     ["retry.def", "add a row", "graph", "do not retry"],
     {"stdin": "something odd happened\n"}),
    ("a_known_failure", ["classify", "-"], 0, ["compile_hbm", "smaller"], ["the whole log"],
     {"stdin": "RESOURCE_EXHAUSTED: E1000: Ran out of memory in memory space hbm\n"}),
    ("skipped_plugins", ["probe"], 0,
     ["skipped   " + TMP + "/venv/lib/python3.11/site-packages/libtpu/libtpu.so: this machine has no TPU"], ["passed  ",
         "lib64"],
     {"env": {"VIRTUAL_ENV": TMP + "/venv", "XLANE_PLUGIN": None}}),
    ("no_such_profile", ["run", "--profile=gpuu", "--cache=off", "--", "true"], 2,
     ["there is no profile 'gpuu'", "cuda-short, cuda, ", "tpu-v6e"], []),
    ("probe_with_a_profile", ["probe", "--profile=cpu"], 0, ["the embedded device, as"],
     ["as no other plugin"], {"env": {"XLANE_PLUGIN": None}}),
    ("nearly_a_plugin", ["probe", "--plugin=tpuu"], 2, ["did you mean 'tpu'?"], []),
    ("a_plugin_that_is_not_there", ["probe", "--plugin=/nope/x.so"], 1, ["check the path"], ["did you mean"]),
    ("profile_sizes", ["profile", "show", "tpu-v6e"], 0, ["  8 GiB", "premapped 8 GiB + loader 0 bytes + headroom 16 GiB of "], ["8589934592", "17179869184"]),
    ("an_unknown_topology", ["ladder", "--plugin=cpu", "--topology=bad"], 1,
     ["not compiled", "xlane:N is N embedded devices"], ["-0.0 MiB"]),
    ("a_config_key_misspelt", ["train", *TINY, "optimizer.lrr=1"], 2, ["did you mean 'optimizer.lr'?"], []),
    ("a_config_section_misspelt", ["train", "typo.yaml"], 2, ["typo.yaml:4", "did you mean 'optimizer.lr'?"], []),
    ("calibrate_key_misspelt", ["calibrate", *TINY, "modle.dim=8"], 2, ["did you mean 'model.dim'?"], []),
    ("rehearse_key_misspelt", ["rehearse", "--plugin=cpu", "--topology=xlane:1", "empty.yaml", *TINY, "modle.dim=8"], 2,
     ["did you mean 'model.dim'?"], []),
    ("a_batch_larger_than_the_data", ["train", *TINY, "data.batch=100"], 0,
     ["data.batch is 100 and the data are 63 windows", "data.batch=63 takes each at most once"], []),
    ("a_batch_as_large_as_the_data", ["train", *TINY, "data.batch=63"], 0, ["63 windows"], ["more than once"]),
    ("run_has_no_json", ["run", "--json", "--cache=off", "--", "true"], 2,
     ["run has no --json", "xlane metrics last --json"], []),
    ("grad_has_no_json", ["grad", "--json", "add.mlir"], 2, ["grad has no --json"], ["func.func"]),
    ("help_of_run_offers_no_json", ["run", "--help"], 0, ["--help"], ["the result as one JSON value"]),
    ("help_of_probe_offers_json", ["probe", "--help"], 0, ["the result as one JSON value"], []),
    ("train_print_is_no_json", ["train", "--print=step", "--json", *TINY], 2, ["--print writes the program as text"],
     ["func.func"]),
    ("a_pass_that_is_not_there", ["print", "--passes=nonsense", "add.mlir"], 2,
     ["there is no pass 'nonsense'; there are inline canonical"], ["func.func"]),
    ("one_pass_of_two_is_not_there", ["print", "--passes=dce,nonsense", "add.mlir"], 2, ["there is no pass 'nonsense'"],
     ["func.func"]),
    ("passes_that_are_there", ["print", "--passes=inline,dce", "add.mlir"], 0, ["stablehlo.add"], ["no pass"]),
    ("dump_after_no_pass", ["print", "--dump-after=nonsense", "add.mlir"], 2,
     ["--dump-after: there is no pass 'nonsense'"], ["func.func"]),
    ("a_schedule_that_is_not_there", ["train", "--fit", *TINY, "optimizer.schedule=nonsense"], 2,
     ["constant, linear, cosine"], ["fit:"]),
    ("a_schedule_shorter_than_its_warmup", ["train", "--fit", *TINY, "optimizer.warmup=20"], 2,
     ["optimizer.warmup=0", "train.steps"], ["fit:"]),
]
for name, command, status, said, unsaid, *more in ROWS:
    got, text = xlane(*command, **(more[0] if more else {}))
    check(name, (status is None or got == status) and all(s in text for s in said)
          and not any(s in text for s in unsaid), "exit status %d, not %s; it said: %s" % (got, status, text))

# A run without a checkpoint, and a report over another.
xlane("train", *TINY, "--quiet", "--runs", "unsaved")
folder = "unsaved/" + os.listdir(os.path.join(TMP, "unsaved"))[0]
got, text = xlane("checkpoint", "verify", folder)
check("checkpoints_that_are_there", got == 0 and "none was saved" not in text, text)
shutil.rmtree(os.path.join(TMP, folder, "checkpoints"))
for name, says in (("gone", "begin the run again at step 0 with: xlane resume --from-scratch %s"),
                   ("never", "`xlane resume %s` trains on and saves one")):
    for verb in ["checkpoint", "verify"], ["eval"]:
        got, text = xlane(*verb, folder)
        check("%s_of_checkpoints_%s" % (verb[0], name), got == 1 and says % folder in text, text)
    os.unlink(os.path.join(TMP, folder, "events.jsonl")) if name == "gone" else None  # now none was, by the record
for turn in 0, 1:
    got, text = xlane("reduce", "--keep=fails", "--out=report", "call.mlir")
    check("report_over_another_%d" % turn, ("held an earlier report" in text) == bool(turn), (got, text))

# A command that is proposed can be typed as it stands.
for where in "with a space", "plain":
    xlane("train", *TINY, "--quiet", "--runs", where)
    folder = where + "/" + os.listdir(os.path.join(TMP, where))[0]
    got, text = xlane("resume", folder)
    proposed = text.split("to go further: ")[-1].splitlines()[0]
    check("a_proposed_command_of_" + where.split()[0], ("'" in proposed) == (" " in where) and folder in proposed, text)
    p = subprocess.run(proposed, shell=True, capture_output=True, text=True, cwd=TMP,
                       env=dict(ENV, PATH=BUILD + ":" + ENV["PATH"]))
    check("and_it_runs_" + where.split()[0], p.returncode == 0 and "step 4, loss" in p.stdout, (p.stdout, p.stderr))

# What --json writes is one JSON value.
os.mkdir(os.path.join(TMP, "cached"))
for words, keys in ((["cache", "ls", "--json", "--cache=cached"], {"folder", "bytes", "bad", "entries"}),
                    (["print", "--json", "add.mlir"], {"module", "hash", "functions", "ops", "text"})):
    status, text = xlane(*words)
    check("json_of_" + words[0], status == 0 and keys <= set(json.loads(text)), text)

# Where nothing ran yet, the last run is asked for all the same.
os.mkdir(os.path.join(TMP, "new"))
for verb in "explain", "top", "metrics", "report":
    p = subprocess.run([XLANE, verb, "last"], capture_output=True, text=True, env=ENV, cwd=os.path.join(TMP, "new"))
    check("no_run_yet_" + verb, p.returncode == 1 and "`xlane run -- CMD` makes it" in p.stderr, p.stderr)

for verb in ["sample"], ["eval"], ["resume"], ["checkpoint", "verify"]:
    p = subprocess.run([XLANE, *verb, "last"], capture_output=True, text=True, env=ENV, cwd=os.path.join(TMP, "new"))
    check("nothing_trained_yet_" + verb[0],
          p.returncode == 1 and "`xlane train` makes it" in p.stderr and "xlane run" not in p.stderr, p.stderr)

# Where ./runs cannot be made, the program runs unrecorded; a capture would have nowhere to go.
write("new/runs", "")
for options, status, said, ran in (([], 0, "not recorded: making the folder runs: runs is a file; --runs=DIR", True),
                                   (["-n", "2"], 0, "this run is not recorded: ", True),
                                   (["--capture=nonfinite"], 1, "making the folder runs: runs is a file", False)):
    p = subprocess.run([XLANE, "run", "--cache=off", "--summary", *options, "--", "echo", "it ran"],
                       capture_output=True, text=True, env=ENV, cwd=os.path.join(TMP, "new"))
    check("no_folder_for_runs" + "".join(options),
          p.returncode == status and p.stderr.count("making the folder") == 1 and said in p.stderr
          and ("it ran" in p.stdout) == ran and "recorded in" not in p.stderr
          and ("not recorded" in p.stderr) == ran, (p.returncode, p.stdout, p.stderr))

# Runs of another user.
os.chmod(TMP, 0o755)
shutil.copy(XLANE, TMP + "/other-xlane")
xlane("run", "--runs=closed", "--name=theirs", "--cache=off", "--", "true")
theirs = os.path.join(TMP, "closed")
one = os.path.join(theirs, [d for d in os.listdir(theirs) if d.endswith("theirs")][0])
for closed, opened in (theirs, one), (one, theirs):
    os.chmod(closed, 0o700 if os.geteuid() == 0 else 0)
    os.chmod(opened, 0o755)
    for command in ["explain", "last"], ["explain", "theirs"], ["explain", one], ["sample", "last"], ["runs"]:
        p = subprocess.run([TMP + "/other-xlane", *command], capture_output=True, text=True, cwd=TMP,
                           env=dict(ENV, XLANE_RUNS=theirs),
                           **({"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}))
        check("closed_" + "_".join([os.path.basename(closed)[-6:], command[0], os.path.basename(command[-1])[-6:]]),
              p.returncode == 1 and theirs in p.stderr and "Permission denied" in p.stderr and "no runs" not in p.stderr
              and "no run folder" not in p.stderr and "no folder" not in p.stderr and not p.stdout, (p.stdout,
                  p.stderr))
    p = subprocess.run([TMP + "/other-xlane", "run", "--cache=off", "--", one + "/program"], capture_output=True,
                       text=True, cwd=TMP, env=ENV,
                       **({"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}))
    check("closed_command_" + os.path.basename(closed)[-6:], p.returncode == 126
          and "/program: Permission denied; nothing ran: check" in p.stderr and "No such file" not in p.stderr, p.stderr)
    os.chmod(closed, 0o755)
got, text = xlane("runs", env={"XLANE_RUNS": theirs})
check("open_runs_are_listed", got == 0 and "theirs" in text and "denied" not in text, (got, text))

# Runs are named by whole parts of their names.
xlane("run", "--name", "strain", "--cache=off", "--", "true")
for _ in range(2):
    xlane("run", "--name", "twice", "--cache=off", "--", "true")
got, text = xlane("memory", "ra")
check("two_letters_are_no_name", got == 2 and "no run folder called 'ra';" in text and "`xlane runs`" in text,
      (got, text))
check("two_letters_are_near_no_name", "in its name" not in text, text)
got, text = xlane("memory", "stra")
check("a_part_of_a_word_names_the_newest_that_has_it",
      got == 2 and "no run folder called 'stra'; the newest with that in "
      "its name is 2" in text and "-strain; `xlane runs`" in text, (got, text))
got, text = xlane("receipt", "verify", "strain")
check("a_whole_word_is_a_name", got == 0 and "sound" in text, (got, text))
got, text = xlane("memory", "twice")
check("a_name_that_several_have", got == 2 and "more than one run folder called 'twice'" in text
      and "`last` is the newest" in text, (got, text))
got, text = xlane("report", "strain", "--out=/nope/x.html")
check("report_where_it_cannot_be_written", got == 1 and "--out=FILE writes it elsewhere" in text, (got, text))
got, text = xlane("profile", "show", "tpu-v6e")
columns = {line.index("built-in ") for line in text.splitlines() if line.startswith("  ") and "->" in line
           and "built-in " in line}
check("profile_columns_line_up", len(columns) == 1, text)
# What the pages say: files that are there, verbs and options that are there.
ROOT = os.path.join(HERE, "..")
pages = [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs", "*.md"))]
helps, missing, wrong = {}, [], []
for page in pages:
    with open(page) as f:
        text = f.read()
    for path in re.findall(r"(?<![\w/.])(?:test|src|docs|examples|profiles|bench|wheel)/[\w./*-]+\.(?:py|c|h|def|md|yaml|inl|sh)\b", text):
        if "**" not in path and not glob.glob(os.path.join(ROOT, path)):
            missing.append((os.path.basename(page), path))
    for verb, rest in re.findall(r"(?:`|^    (?:build/|\./)?|^(?:build/)|&& )(?:build/)?xlane ([a-z]+(?:-[a-z]+)*)([^`\n]*)", text,
                                 re.M):
        if verb not in helps:
            helps[verb] = xlane(verb, "--help")
        status, about = helps[verb]
        options = re.findall(r"(?<![\w-])--([a-z][a-z-]+)", re.sub(r"([\"'])[^\"']*\1", "",
            rest).split(" -- ")[0].split("#")[0])
        if status or any("--" + o not in about for o in options):
            wrong.append((os.path.basename(page), verb, options, status))
check("pages_cite_files_that_are_there", not missing, missing)
check("pages_show_verbs_and_options_that_are_there", not wrong and len(helps) > 15, (wrong, sorted(helps)))
shutil.rmtree(TMP, ignore_errors=True)
sys.exit(end())
