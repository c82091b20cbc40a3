// Ops of StableHLO and CHLO that JAX lowers to others, so that test/jax_ops.py never meets them.
// expect: out0 f32[3] 0.5 0 1
// expect: out1 f32[3] 11 22 33
// expect: out2 f32[2,3] 1 2 3 1 2 3
// expect: out3 f32[2,2] 3 1 6 4
// expect: out4 f32[2] 14 32
// expect: out5 f32[2] -2 2
// expect: out6 f32[1] 0
// expect: out7 f32[3] 2 4 6
// expect: out8 f32[3] 1 2 3
// expect: out9 f32[2] 0 0
// expect: out10 i32[] 3
func.func private @twice(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %x, %x : tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func public @main() -> (tensor<3xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<2x2xf32>, tensor<2xf32>,
    tensor<2xf32>, tensor<1xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2xf32>, tensor<i32>) {
  %ends = stablehlo.constant dense<[0.0, 0xFF800000, 0x7F800000]> : tensor<3xf32>
  %0 = "stablehlo.logistic"(%ends) : (tensor<3xf32>) -> tensor<3xf32>
  %v = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %w = stablehlo.constant dense<[10.0, 20.0, 30.0]> : tensor<3xf32>
  %1 = "stablehlo.map"(%v, %w) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = "stablehlo.broadcast"(%v) <{broadcast_sizes = array<i64: 2>}> : (tensor<3xf32>) -> tensor<2x3xf32>
  %m = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %at = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
  %3 = "stablehlo.torch_index_select"(%m, %at) <{batch_dims = 0 : i64, dim = 1 : i64}>
    : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %4 = "stablehlo.dot"(%m, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>
  %part = stablehlo.constant dense<[2.0, -2.0]> : tensor<2xf32>
  %z = stablehlo.complex %part, %part : tensor<2xcomplex<f32>>
  %c = "chlo.conj"(%z) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  %5 = stablehlo.imag %c : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<1xf32>
  %6 = "chlo.tan"(%zero) : (tensor<1xf32>) -> tensor<1xf32>
  %7 = stablehlo.composite "mine.twice" %v {decomposition = @twice} : (tensor<3xf32>) -> tensor<3xf32>
  %yes = stablehlo.constant dense<true> : tensor<i1>
  %8 = "stablehlo.if"(%yes) ({
    stablehlo.return %v : tensor<3xf32>
  }, {
    stablehlo.return %w : tensor<3xf32>
  }) : (tensor<i1>) -> tensor<3xf32>
  %replica = stablehlo.replica_id : tensor<ui32>
  %partition = stablehlo.partition_id : tensor<ui32>
  %both = stablehlo.add %replica, %partition : tensor<ui32>
  %number = stablehlo.convert %both : (tensor<ui32>) -> tensor<f32>
  %9 = "stablehlo.broadcast"(%number) <{broadcast_sizes = array<i64: 2>}> : (tensor<f32>) -> tensor<2xf32>
  %10 = "stablehlo.get_dimension_size"(%m) <{dimension = 1 : i64}> : (tensor<2x3xf32>) -> tensor<i32>
  return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10 : tensor<3xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<2x2xf32>,
    tensor<2xf32>, tensor<2xf32>, tensor<1xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2xf32>, tensor<i32>
}
