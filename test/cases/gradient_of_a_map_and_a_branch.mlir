// The gradient of the branch that is taken; a map's is that of its region.
// gradient: 0=2 1=5
// expect: out0 f64[] 20
// expect: out1 f64[] 10
// expect: out2 f64[] 4
func.func @main(%a: tensor<f64>, %b: tensor<f64>) -> tensor<f64> {
  %less = stablehlo.compare LT, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
  %r = "stablehlo.if"(%less) ({
    %p = "stablehlo.map"(%a, %b) <{dimensions = array<i64>}> ({
    ^bb0(%x: tensor<f64>, %y: tensor<f64>):
      %q = stablehlo.multiply %x, %y : tensor<f64>
      %s = stablehlo.add %q, %q : tensor<f64>
      stablehlo.return %s : tensor<f64>
    }) : (tensor<f64>, tensor<f64>) -> tensor<f64>
    stablehlo.return %p : tensor<f64>
  }, {
    stablehlo.return %a : tensor<f64>
  }) : (tensor<i1>) -> tensor<f64>
  return %r : tensor<f64>
}
