// A start that would reach beyond the end is moved back, so that the slice has its size.
// expect: out0 i32[2] 3 4
func.func @main() -> tensor<2xi32> {
  %x = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %at = stablehlo.constant dense<9> : tensor<i32>
  %0 = stablehlo.dynamic_slice %x, %at, sizes = [2] : (tensor<4xi32>, tensor<i32>) -> tensor<2xi32>
  return %0 : tensor<2xi32>
}
