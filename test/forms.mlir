// Forms that JAX does not print, one program each after a line `// ----- NAME`; test/roundtrip.py has jaxlib judge them.
// ----- sdy collectives
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> tensor<8x16xf32> {
  %0 = sdy.all_gather [{}, {"y"}] %a out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x16xf32>
  %1 = sdy.all_slice [{}, {"y":(1)2}] %0 out_sharding=<@mesh, [{"x"}, {"y":(1)2}]> : tensor<8x16xf32>
  %2 = sdy.collective_permute %1 out_sharding=<@mesh, [{"x"}, {"y":(2)2}]> : tensor<8x16xf32>
  %3 = sdy.all_to_all [{"x"}: 0->1] %a out_sharding=<@mesh, [{}, {"y", "x"}]> : tensor<8x16xf32>
  return %3 : tensor<8x16xf32>
}
// ----- sdy all_reduce
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %4 = sdy.all_reduce {"x"} %a out_sharding=<@mesh, [{}, {}]> : tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}
// ----- replica groups by mesh axes
sdy.mesh @mesh = <["foo"=2, "bar"=4]>
func.func @main(%operand: tensor<16x8xf32>) -> tensor<16x16xf32> {
  %0 = "stablehlo.all_gather"(%operand) {all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "foo">]>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<16x8xf32>) -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}
// ----- ragged_dot
func.func @main(%lhs : tensor<11x5xf32>, %rhs : tensor<3x5x7xf32>, %group_sizes : tensor<3xi64>) -> tensor<11x7xf32> {
  %0 = "chlo.ragged_dot"(%lhs, %rhs, %group_sizes) {ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, precision_config = [#chlo<precision DEFAULT>, #chlo<precision HIGH>]} : (tensor<11x5xf32>, tensor<3x5x7xf32>, tensor<3xi64>) -> tensor<11x7xf32>
  return %0 : tensor<11x7xf32>
}
// ----- scan in its own form
func.func @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0:2 = chlo.scan(%arg0) inits (%arg1) dimension = 0 attributes {is_reverse = true} {
  ^bb0(%i: tensor<3xf32>, %c: tensor<3xf32>):
    %2 = stablehlo.add %i, %c : tensor<3xf32>
    stablehlo.return %2, %2 : tensor<3xf32>, tensor<3xf32>
  } : (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>)
  return %0#0 : tensor<2x3xf32>
}
// ----- bounded dimensions
func.func @main(%a: tensor<?x4xf32, #stablehlo.bounds<3, ?>>, %n: tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<3, ?>> {
  %0 = stablehlo.add %a, %a : tensor<?x4xf32, #stablehlo.bounds<3, ?>>
  %1 = stablehlo.get_dimension_size %0, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<3, ?>>) -> tensor<i32>
  %2 = stablehlo.constant dense<1.0> : tensor<3x4xf32>
  %3 = stablehlo.set_dimension_size %2, %1, dim = 0 : (tensor<3x4xf32>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<3, ?>>
  return %3 : tensor<?x4xf32, #stablehlo.bounds<3, ?>>
}
// ----- tuples, tokens, hosts
func.func @main(%a: tensor<2xf32>, %b: tensor<i32>, %t: !stablehlo.token) -> (tensor<i32>, !stablehlo.token) {
  %0 = stablehlo.tuple %a, %b : tuple<tensor<2xf32>, tensor<i32>>
  %1 = stablehlo.tuple %0, %t : tuple<tuple<tensor<2xf32>, tensor<i32>>, !stablehlo.token>
  %2 = stablehlo.get_tuple_element %1[0] : (tuple<tuple<tensor<2xf32>, tensor<i32>>, !stablehlo.token>) -> tuple<tensor<2xf32>, tensor<i32>>
  %3 = stablehlo.get_tuple_element %2[1] : (tuple<tensor<2xf32>, tensor<i32>>) -> tensor<i32>
  %4 = stablehlo.after_all %t, %t : !stablehlo.token
  %5:2 = "stablehlo.infeed"(%4) {infeed_config = "x", layout = [[0]]} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  %6 = "stablehlo.outfeed"(%5#0, %5#1) {outfeed_config = ""} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  %7 = "stablehlo.send"(%a, %6) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  %8:2 = "stablehlo.recv"(%7) {channel_handle = #stablehlo.channel_handle<handle = 6, type = 3>, is_host_transfer = true} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  return %3, %8#1 : tensor<i32>, !stablehlo.token
}
// ----- async
func.func @main(%arg0: tensor<8x2xf32>) -> tensor<8x8xf32> {
  %0 = "stablehlo.async_start"(%arg0) ({
  ^bb0(%b: tensor<8x2xf32>):
    %1 = "stablehlo.all_gather"(%b) {all_gather_dim = 1 : i64, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>} : (tensor<8x2xf32>) -> tensor<8x8xf32>
    stablehlo.return %1 : tensor<8x8xf32>
  }) : (tensor<8x2xf32>) -> !stablehlo.future<tensor<8x8xf32>>
  %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<8x8xf32>>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}
// ----- result packs and bit patterns
func.func @main(%a: tensor<4xf32>, %i: tensor<4xi32>, %p: tensor<i1>) -> (tensor<4xf32>, tensor<4xi32>, tensor<f32>) {
  %0:2, %1 = "stablehlo.if"(%p) ({
    %z = stablehlo.constant dense<0x7FC00001> : tensor<f32>
    stablehlo.return %a, %i, %z : tensor<4xf32>, tensor<4xi32>, tensor<f32>
  }, {
    %z = stablehlo.constant dense<-0.0> : tensor<f32>
    stablehlo.return %a, %i, %z : tensor<4xf32>, tensor<4xi32>, tensor<f32>
  }) : (tensor<i1>) -> (tensor<4xf32>, tensor<4xi32>, tensor<f32>)
  %2:2 = "stablehlo.sort"(%0#0, %0#1) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>, %u: tensor<i32>, %v: tensor<i32>):
    %c = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<4xf32>, tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>)
  return %2#0, %2#1, %1 : tensor<4xf32>, tensor<4xi32>, tensor<f32>
}
// ----- trailing comma, window reversal
func.func @main(%operand: tensor<3xi32>, %index: tensor<1x1xi32>, %update: tensor<1xi32>, %img: tensor<1x4x4x1xf32>, %ker: tensor<3x3x1x1xf32>) -> (tensor<3xi32>, tensor<1x4x4x1xf32>) {
  %0 = "stablehlo.scatter"(%operand, %index, %update) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    "stablehlo.return"(%y) : (tensor<i32>) -> ()
  }) {indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1,>, unique_indices = false} : (tensor<3xi32>, tensor<1x1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %1 = stablehlo.convolution(%img, %ker) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>]} : (tensor<1x4x4x1xf32>, tensor<3x3x1x1xf32>) -> tensor<1x4x4x1xf32>
  return %0, %1 : tensor<3xi32>, tensor<1x4x4x1xf32>
}
// ----- accuracy, no elements, precision format
func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<0x2xi64>) {
  %0 = stablehlo.exponential %a {result_accuracy = #stablehlo.result_accuracy<atol = 0.0, rtol = 1.0e-3, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<2x3xf32>
  %1 = stablehlo.constant dense<0> : tensor<0x2xi64>
  %2 = stablehlo.reduce_precision %0, format = e5m10 : tensor<2x3xf32>
  return %2, %1 : tensor<2x3xf32>, tensor<0x2xi64>
}
// ----- algorithm, layouts, aliases
func.func @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = stablehlo.custom_call @t(%0, %a) {operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], api_version = 4 : i32, backend_config = {a = 1 : i32, b = "x"}} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %1 : tensor<2x2xf32>
}
// ----- collectives with groups
func.func @main(%a: tensor<8xf32>, %r: tensor<1xi32>) -> (tensor<8xf32>, tensor<2xf32>) {
  %0 = "stablehlo.collective_broadcast"(%a) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "stablehlo.reduce_scatter"(%0) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<8xf32>) -> tensor<2xf32>
  return %0, %1 : tensor<8xf32>, tensor<2xf32>
}
