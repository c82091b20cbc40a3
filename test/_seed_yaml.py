"""Seeds for the fuzzer of YAML: what profiles and configurations use, and what they must not."""
import sys

for i, text in enumerate(["a: 1\nb: [1, 2.5, true, null, 'x', \"y\\n\"]\nc:\n  - d: e\n    f: |\n      text\n  - {g: 0x10}\n", "&a x: *a\n", "--- !!str 1\n...\n--- 2\n",
                          "? [k]\n: v\n", "a: >-\n  folded\n  text\nb: 1e3\n"]):
    open(f"{sys.argv[1]}/{i}", "w").write(text)
