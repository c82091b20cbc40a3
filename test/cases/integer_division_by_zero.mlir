// XLA defines what processors trap on: x / 0 is -1, x rem 0 is x, and the least integer by -1 is itself with remainder 0.
// expect: out0 i32[2] -1 -2147483648
// expect: out1 i32[2] 7 0
func.func @main() -> (tensor<2xi32>, tensor<2xi32>) {
  %x = stablehlo.constant dense<[7, -2147483648]> : tensor<2xi32>
  %y = stablehlo.constant dense<[0, -1]> : tensor<2xi32>
  %0 = stablehlo.divide %x, %y : tensor<2xi32>
  %1 = stablehlo.remainder %x, %y : tensor<2xi32>
  return %0, %1 : tensor<2xi32>, tensor<2xi32>
}
