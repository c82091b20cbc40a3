// The maximum of NaN and anything is NaN, on either side.
// expect: out0 f32[3] nan nan 2
func.func @main() -> tensor<3xf32> {
  %x = stablehlo.constant dense<[0x7FC00000, 1.0, 2.0]> : tensor<3xf32>
  %y = stablehlo.constant dense<[1.0, 0x7FC00000, 1.0]> : tensor<3xf32>
  %0 = stablehlo.maximum %x, %y : tensor<3xf32>
  return %0 : tensor<3xf32>
}
