// Dynamic forms whose sizes are known before the program runs.
// expect: out0 f32[4] 0 1 2 3
// expect: out1 f32[2,3] 1 2 3 1 2 3
// expect: out2 f32[3,1] 1 2 3
// expect: out3 f32[5] 7 1 2 3 7
func.func @main() -> (tensor<4xf32>, tensor<2x3xf32>, tensor<3x1xf32>, tensor<5xf32>) {
  %four = stablehlo.constant dense<[4]> : tensor<1xi64>
  %0 = "stablehlo.dynamic_iota"(%four) <{iota_dimension = 0 : i64}> : (tensor<1xi64>) -> tensor<4xf32>
  %v = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %to = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %1 = "stablehlo.dynamic_broadcast_in_dim"(%v, %to) <{broadcast_dimensions = array<i64: 1>}>
    : (tensor<3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %as = stablehlo.constant dense<[3, 1]> : tensor<2xi64>
  %2 = "stablehlo.dynamic_reshape"(%v, %as) : (tensor<3xf32>, tensor<2xi64>) -> tensor<3x1xf32>
  %pad = stablehlo.constant dense<7.0> : tensor<f32>
  %one = stablehlo.constant dense<[1]> : tensor<1xi64>
  %none = stablehlo.constant dense<[0]> : tensor<1xi64>
  %3 = "stablehlo.dynamic_pad"(%v, %pad, %one, %one, %none)
    : (tensor<3xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<5xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<2x3xf32>, tensor<3x1xf32>, tensor<5xf32>
}
