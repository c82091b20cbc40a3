"""Seeds for the fuzzer of the protobuf wire format: small HLO modules and compile options."""
import runpy

# first: the corpus sets how many devices JAX starts with
runpy.run_path(__file__.replace("_proto", "_hlo"))
runpy.run_path(__file__.replace("_proto", "_options"))
