"""Seeds for the fuzzer of JSON: every kind of value, escapes, numbers at the edges."""
import sys

for i, text in enumerate(['{"a":[1,-0,1e308,0.1,1E-5,9223372036854775807,-9223372036854775808,18446744073709551615],"b":{"c":null,"d":[true,false,[]]}}',
                          r'"\u0041\ud83d\ude00\n\"\\\/\b\f\r\t"', "[[[[[[]]]]]]", '{"":{"":""}}', "  12.5e+3 "]):
    open(f"{sys.argv[1]}/{i}", "w").write(text)
