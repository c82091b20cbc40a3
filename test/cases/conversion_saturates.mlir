// A float beyond the integers becomes the nearest integer, NaN becomes 0.
// expect: out0 i32[3] 2147483647 -2147483648 0
func.func @main() -> tensor<3xi32> {
  %x = stablehlo.constant dense<[1.0e+10, -1.0e+10, 0x7FC00000]> : tensor<3xf32>
  %0 = stablehlo.convert %x : (tensor<3xf32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
