// Negative padding may leave nothing, or less, for windows to cover: then there are no results.
// expect: out0 f32[0]
// expect: out1 f32[0]
func.func @main() -> (tensor<0xf32>, tensor<0xf32>) {
  %x = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %n = stablehlo.slice %x [0:0] : (tensor<3xf32>) -> tensor<0xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 2>, padding = dense<[[-2, -2]]> : tensor<1x2xi64>} : (tensor<3xf32>, tensor<f32>) -> tensor<0xf32>
  %1 = "stablehlo.reduce_window"(%n, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 2>, padding = dense<[[-1, 0]]> : tensor<1x2xi64>} : (tensor<0xf32>, tensor<f32>) -> tensor<0xf32>
  return %0, %1 : tensor<0xf32>, tensor<0xf32>
}
