// 258 ones in bf16 make 258; an accumulator in bf16 would stop at 256.
// expect: out0 bf16[] 258
func.func @main() -> tensor<bf16> {
  %one = stablehlo.constant dense<1.0> : tensor<258xbf16>
  %0 = stablehlo.dot_general %one, %one, contracting_dims = [0] x [0]
    : (tensor<258xbf16>, tensor<258xbf16>) -> tensor<bf16>
  return %0 : tensor<bf16>
}
