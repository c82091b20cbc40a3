// Batch normalisation with a variance of 1 and an epsilon of 3; a factorisation and a solve whose roots are whole.
// expect: out0 f32[2,1] 0 2
// expect: out1 f32[2,1] 0 2
// expect: out2 f32[1] 2
// expect: out3 f32[1] 1
// expect: out4 f32[2,1] -0.75 0.75
// expect: out5 f32[1] 1
// expect: out6 f32[1] 4
// expect: out7 f32[2,2] 2 0 1 2
// expect: out8 f32[2,1] 1 2
func.func @main() -> (tensor<2x1xf32>, tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<2x1xf32>, tensor<1xf32>,
    tensor<1xf32>, tensor<2x2xf32>, tensor<2x1xf32>) {
  %x = stablehlo.constant dense<[[1.0], [3.0]]> : tensor<2x1xf32>
  %one = stablehlo.constant dense<[1.0]> : tensor<1xf32>
  %two = stablehlo.constant dense<[2.0]> : tensor<1xf32>
  %0 = "stablehlo.batch_norm_inference"(%x, %two, %one, %two, %one) <{epsilon = 3.0 : f32, feature_index = 1 : i64}>
    : (tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x1xf32>
  %1:3 = "stablehlo.batch_norm_training"(%x, %two, %one) <{epsilon = 3.0 : f32, feature_index = 1 : i64}>
    : (tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>) -> (tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>)
  %2:3 = "stablehlo.batch_norm_grad"(%x, %two, %two, %one, %x) <{epsilon = 3.0 : f32, feature_index = 1 : i64}>
    : (tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<2x1xf32>)
    -> (tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>)
  %a = stablehlo.constant dense<[[4.0, 2.0], [2.0, 5.0]]> : tensor<2x2xf32>
  %l = "stablehlo.cholesky"(%a) <{lower = true}> : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %up = stablehlo.constant dense<0.0> : tensor<f32>
  %row = stablehlo.iota dim = 0 : tensor<2x2xi32>
  %col = stablehlo.iota dim = 1 : tensor<2x2xi32>
  %low = stablehlo.compare GE, %row, %col : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi1>
  %zero = stablehlo.broadcast_in_dim %up, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
  %3 = stablehlo.select %low, %l, %zero : tensor<2x2xi1>, tensor<2x2xf32>
  %b = stablehlo.constant dense<[[2.0], [5.0]]> : tensor<2x1xf32>
  %4 = "stablehlo.triangular_solve"(%3, %b) <{left_side = true, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  return %0, %1#0, %1#1, %1#2, %2#0, %2#1, %2#2, %3, %4 : tensor<2x1xf32>, tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>,
    tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<2x2xf32>, tensor<2x1xf32>
}
