// The source goes to the largest element of each window, the first of equal ones; windows that meet in one add up.
// expect: out0 f32[4] 0 30 0 5
// expect: out1 f32[4] 7 0 8 0
func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %x = stablehlo.constant dense<[1.0, 9.0, 2.0, 3.0]> : tensor<4xf32>
  %s = stablehlo.constant dense<[10.0, 20.0, 5.0]> : tensor<3xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %s, %zero) <{window_dimensions = array<i64: 2>,
    window_strides = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %ge : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<4xf32>, tensor<3xf32>, tensor<f32>) -> tensor<4xf32>
  %e = stablehlo.constant dense<[4.0, 4.0, 6.0, 6.0]> : tensor<4xf32>
  %t = stablehlo.constant dense<[7.0, 8.0]> : tensor<2xf32>
  %1 = "stablehlo.select_and_scatter"(%e, %t, %zero) <{window_dimensions = array<i64: 2>,
    window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %ge : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
