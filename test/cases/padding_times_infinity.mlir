// What lies beside a convolution's operand is zeros, also where groups are computed together: infinity times them is NaN,
// 7 here.
// expect: out0 f32[1,1,3,3] 7 7 7 7 inf inf 7 inf inf
func.func @main() -> tensor<1x1x3x3xf32> {
  %x = stablehlo.constant dense<1.0> : tensor<1x2x3x3xf32>
  %k = stablehlo.constant dense<[[[[0x7F800000, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]], [[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]]> : tensor<2x1x3x3xf32>
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<1x2x3x3xf32>, tensor<2x1x3x3xf32>) -> tensor<1x2x3x3xf32>
  %1 = stablehlo.slice %0 [0:1, 0:1, 0:3, 0:3] : (tensor<1x2x3x3xf32>) -> tensor<1x1x3x3xf32>
  %c = stablehlo.constant dense<7.0> : tensor<1x1x3x3xf32>
  %n = stablehlo.compare NE, %1, %1 : (tensor<1x1x3x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x1x3x3xi1>
  %r = stablehlo.select %n, %c, %1 : tensor<1x1x3x3xi1>, tensor<1x1x3x3xf32>
  return %r : tensor<1x1x3x3xf32>
}
