// Where a result is made of few products, each is rounded before it is added, as in XLA: x squared is not exact in f32.
// expect: out0 f32[1,1,1] 0
// expect: out1 complex<f32>[1,1] 0 2.00097656
func.func @main() -> (tensor<1x1x1xf32>, tensor<1x1xcomplex<f32>>) {
  %x = stablehlo.constant dense<[[[-1.00048828125, 1.000244140625]]]> : tensor<1x1x2xf32>
  %k = stablehlo.constant dense<[[[1.0, 1.000244140625]]]> : tensor<1x1x2xf32>
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x1xf32>
  %u = stablehlo.constant dense<[[(1.000244140625, 1.00048828125)]]> : tensor<1x1xcomplex<f32>>
  %v = stablehlo.constant dense<[[(1.000244140625, 1.0)]]> : tensor<1x1xcomplex<f32>>
  %1 = stablehlo.dot_general %u, %v, contracting_dims = [1] x [0] : (tensor<1x1xcomplex<f32>>, tensor<1x1xcomplex<f32>>) -> tensor<1x1xcomplex<f32>>
  return %0, %1 : tensor<1x1x1xf32>, tensor<1x1xcomplex<f32>>
}
