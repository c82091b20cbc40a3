// Frontends turn the broadcasting forms into StableHLO before they send a program.
// error: chlo.broadcast_add: broadcasting CHLO ops are not supported: legalise them to StableHLO
func.func @main(%x: tensor<3xf32>, %y: tensor<2x1xf32>) -> tensor<2x3xf32> {
  %0 = "chlo.broadcast_add"(%x, %y) : (tensor<3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
