"""Seeds for the fuzzer of the protobuf wire format: small HLO modules and compile options."""
import runpy

runpy.run_path(__file__.replace("_proto", "_options"))
runpy.run_path(__file__.replace("_proto", "_hlo"))
