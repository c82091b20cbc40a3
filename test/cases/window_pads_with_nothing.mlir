// The initial value of windows counts once, the padding not, as in XLA: sums, products, reducers of the program's own.
// expect: out0 f32[4] 13 16 19 17
// expect: out1 i32[4] 4 12 48 24
// expect: out2 f32[4] 13 16 19 17
// expect: out3 f32[4] 2 3 4 4
func.func @main() -> (tensor<4xf32>, tensor<4xi32>, tensor<4xf32>, tensor<4xf32>) {
  %x = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %y = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %ten = stablehlo.constant dense<10.0> : tensor<f32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %ten) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 3>, padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "stablehlo.reduce_window"(%y, %two) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.multiply %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) {window_dimensions = array<i64: 3>, padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
  %2 = "stablehlo.reduce_window"(%x, %ten) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.add %a, %b : tensor<f32>
    %s = stablehlo.add %r, %c : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 3>, padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = "stablehlo.reduce_window"(%x, %ten) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) {window_dimensions = array<i64: 3>, padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xi32>, tensor<4xf32>, tensor<4xf32>
}
