// A row of what a loop stacks, and a slice of that row that the loop reads, too: both lie in the stacked result.
// expect: out0 f32[5] 2 3 4 5 6
// expect: out1 f32[2,5] 0 2 4 6 8 0 2 4 6 8
func.func @main() -> (tensor<5xf32>, tensor<2x5xf32>) {
  %x = stablehlo.iota dim = 0 : tensor<5xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<2> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<2x5xf32>
  %r:3 = stablehlo.while(%i = %zero, %b = %x, %rows = %none) : tensor<i32>, tensor<5xf32>, tensor<2x5xf32>
   cond {
    %lt = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %lt : tensor<i1>
  } do {
    %two = stablehlo.constant dense<2.0> : tensor<5xf32>
    %t = stablehlo.multiply %b, %two : tensor<5xf32>
    %e = stablehlo.dynamic_slice %t, %i, sizes = [1] : (tensor<5xf32>, tensor<i32>) -> tensor<1xf32>
    %s = stablehlo.reshape %e : (tensor<1xf32>) -> tensor<f32>
    %all = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<5xf32>
    %c = stablehlo.add %b, %all : tensor<5xf32>
    %row = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<5xf32>) -> tensor<1x5xf32>
    %next = stablehlo.dynamic_update_slice %rows, %row, %i, %zero : (tensor<2x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<2x5xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %c, %next : tensor<i32>, tensor<5xf32>, tensor<2x5xf32>
  }
  return %r#1, %r#2 : tensor<5xf32>, tensor<2x5xf32>
}
