// Few elements gathered from an elementwise op's result are computed alone, from clamped places.
// expect: out0 f32[2,2] 103 139 200 205
// expect: out1 f32[3] 21 0 78
func.func @main() -> (tensor<2x2xf32>, tensor<3xf32>) {
  %row = stablehlo.iota dim = 1 : tensor<2x40xf32>
  %base = stablehlo.constant dense<[[100.0], [200.0]]> : tensor<2x1xf32>
  %all = stablehlo.broadcast_in_dim %base, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x40xf32>
  %sum = stablehlo.add %row, %all : tensor<2x40xf32>
  %at = stablehlo.constant dense<[[[3], [77]], [[-5], [5]]]> : tensor<2x2x1xi32>
  %0 = "stablehlo.gather"(%sum, %at) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1],
    operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<2x40xf32>, tensor<2x2x1xi32>) -> tensor<2x2xf32>
  %line = stablehlo.iota dim = 0 : tensor<40xf32>
  %over = stablehlo.broadcast_in_dim %line, dims = [1] : (tensor<40xf32>) -> tensor<2x40xf32>
  %twice = stablehlo.add %over, %row : tensor<2x40xf32>
  %index = stablehlo.iota dim = 0 : tensor<2x40xf32>
  %both = stablehlo.add %twice, %index : tensor<2x40xf32>
  %spots = stablehlo.constant dense<[[1, 10], [0, 0], [0, 90]]> : tensor<3x2xi32>
  %1 = "stablehlo.gather"(%both, %spots) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}>
    : (tensor<2x40xf32>, tensor<3x2xi32>) -> tensor<3xf32>
  return %0, %1 : tensor<2x2xf32>, tensor<3xf32>
}
