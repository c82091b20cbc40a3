"""Seeds for the fuzzer of what PyTorch/XLA writes of its compiles: a sync, a value that is read, and two in a row."""
import sys

HEAD = "Compilation Analysis: "


def block(cause, *frames):
    lines = ["Compilation Cause", "  " + cause, "Graph Info: ", "  Graph Hash: 3d5ee4e1d5ad4a3f",
             "  Number of Graph Inputs: 3",
             "Python Frame Triggered Execution: ", *("  " + f for f in frames), "-" * 40, "=" * 80]
    return "".join(HEAD + line + "\n" for line in lines)


sync = block("user torch_xla.sync", "sync (/v/lib/python3.11/site-packages/torch_xla/torch_xla.py:87)",
             "train (/home/me/train.py:9)")
value = block("most likely user code trying to access tensor value before torch_xla.sync", "loss (train.py:3)")
for name, text in dict(sync=sync, value=value, both=sync + "Post " + value + value, cut=sync[10:], none="").items():
    with open(sys.argv[1] + "/" + name, "w") as f:
        f.write(text)
