// A shift by the width or more gives 0, or the sign for an arithmetic one.
// expect: out0 i32[2] 0 0
// expect: out1 i32[2] -1 -1
func.func @main() -> (tensor<2xi32>, tensor<2xi32>) {
  %x = stablehlo.constant dense<-5> : tensor<2xi32>
  %by = stablehlo.constant dense<[32, 100]> : tensor<2xi32>
  %0 = stablehlo.shift_left %x, %by : tensor<2xi32>
  %1 = stablehlo.shift_right_arithmetic %x, %by : tensor<2xi32>
  return %0, %1 : tensor<2xi32>, tensor<2xi32>
}
