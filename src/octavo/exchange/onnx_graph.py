"""ONNX graphs of one step put together, named, and compared with the model that they were traced from.

The inputs are `token` and `state_0`, `state_1`, ...; the outputs are `logits` and `next_state_0`, `next_state_1`, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from octavo.core import LanguageModel, seeded_generator, tensors_of
from octavo.errors import UserError

TOKEN, LOGITS, STATE, NEXT = "token", "logits", "state_", "next_state_"
STEPS = 5  # that are compared from each of the lengths


class Branch(NamedTuple):
    """A step, as an ONNX model, for states of one size; None: for all others."""

    size: int | None
    step: Any


def joined(branches: Sequence[Branch], place: tuple[int, int] | None, about: Mapping[str, str]) -> Any:
    """One model that takes the branch of its state's size; `place` is the state and the axis that have it."""
    import onnx

    first = branches[-1].step
    inputs = [TOKEN, *(f"{STATE}{i}" for i in range(len(first.graph.input) - 1))]
    outputs = [LOGITS, *(f"{NEXT}{i}" for i in range(len(first.graph.output) - 1))]
    weights: dict[tuple[Any, ...], Any] = {}
    several = len(branches) > 1
    bodies = [
        _body(branch.step, inputs, outputs, f"b{i}." if several else "", weights) for i, branch in enumerate(branches)
    ]
    nodes = _chosen(branches, bodies, place, outputs) if place is not None and several else list(bodies[0].node)
    graphs = [branch.step.graph for branch in branches]
    values = [_named(name, same) for name, *same in zip(inputs, *(graph.input for graph in graphs), strict=True)]
    results = [_named(name, same) for name, *same in zip(outputs, *(graph.output for graph in graphs), strict=True)]
    graph = onnx.helper.make_graph(nodes, "step", values, results, list(weights.values()))
    model = onnx.helper.make_model(graph, opset_imports=list(first.opset_import), ir_version=first.ir_version)
    for key, value in about.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(model)
    return model


def _body(step: Any, inputs: list[str], outputs: list[str], prefix: str, weights: dict[tuple[Any, ...], Any]) -> Any:
    """The nodes of a step under names of their own; its weights are shared with equal ones of other branches."""
    import onnx
    import onnx.inliner

    graph = onnx.inliner.inline_local_functions(step).graph
    names = dict(zip((one.name for one in graph.input), inputs, strict=True))
    for tensor in graph.initializer:
        key = (tensor.data_type, tuple(tensor.dims), onnx.numpy_helper.to_array(tensor).tobytes())
        shared = weights.setdefault(key, tensor)
        names[tensor.name] = shared.name if shared is not tensor else prefix + tensor.name
    body = onnx.GraphProto(name=prefix)
    _copy(graph, body, names, prefix)
    for tensor in graph.initializer:
        tensor.name, tensor.doc_string = names[tensor.name], ""
        del tensor.metadata_props[:]
    for name, result in zip(outputs, graph.output, strict=True):  # a node, for a result may be an input as it is
        body.node.append(onnx.helper.make_node("Identity", [names[result.name]], [prefix + name], prefix + name))
        body.output.append(onnx.helper.make_tensor_value_info(prefix + name, result.type.tensor_type.elem_type, None))
    return body


def _copy(graph: Any, body: Any, names: dict[str, str], prefix: str) -> None:
    """Append the nodes of a graph, renamed, those within nodes too."""
    vectors = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 1}
    for node in (new for old in graph.node for new in _as_matrices(old, vectors)):
        new = body.node.add()
        new.CopyFrom(node)
        for i, name in enumerate(node.output):
            names[name] = new.output[i] = prefix + name if name else ""
        for i, name in enumerate(node.input):
            new.input[i] = names.get(name, name)
        new.name, new.doc_string = prefix + node.name, ""
        del new.metadata_props[:]  # where in the source it comes from
        for attribute in new.attribute:
            if attribute.HasField("g"):
                inner = attribute.g
                source = type(inner)()
                source.CopyFrom(inner)
                del inner.node[:]
                _copy(source, inner, names, prefix)
                for result in inner.output:
                    result.name = names.get(result.name, result.name)


def _as_matrices(node: Any, vectors: set[str]) -> list[Any]:
    """A product of matrices with a vector as one with a matrix of one column: onnxruntime's fails with no matrices."""
    import onnx

    if node.op_type != "MatMul" or node.input[1] not in vectors:
        return [node]
    (result,), axis, column, product = node.output, f"{node.name}.axis", f"{node.name}.column", f"{node.name}.product"
    last = onnx.helper.make_tensor(axis, onnx.TensorProto.INT64, [1], [-1])
    return [
        onnx.helper.make_node("Constant", [], [axis], axis, value=last),
        onnx.helper.make_node("Unsqueeze", [node.input[1], axis], [column], column),
        onnx.helper.make_node("MatMul", [node.input[0], column], [product], product),
        onnx.helper.make_node("Squeeze", [product, axis], [result], node.name),
    ]


def _chosen(branches: Sequence[Branch], bodies: list[Any], place: tuple[int, int], outputs: list[str]) -> list[Any]:
    """Nodes that find the state's size and run the branch for it; the last one is for whatever is left."""
    import onnx

    state, axis = place
    sizes = [branch.size or 0 for branch in branches]
    nodes = [onnx.helper.make_node("Shape", [f"{STATE}{state}"], ["size"], start=axis, end=axis + 1)]
    otherwise = bodies[-1]
    for i in reversed(range(len(branches) - 1)):
        size = onnx.helper.make_tensor(f"size_{i}", onnx.TensorProto.INT64, [1], [sizes[i]])
        compare = [
            onnx.helper.make_node("Constant", [], [f"size_{i}"], value=size),
            onnx.helper.make_node("Equal", ["size", f"size_{i}"], [f"is_{i}"]),
        ]
        names = outputs if i == 0 else [f"c{i}.{name}" for name in outputs]
        choice = onnx.helper.make_node("If", [f"is_{i}"], names, then_branch=bodies[i], else_branch=otherwise)
        if i == 0:
            return [*nodes, *compare, choice]
        kinds = [one.type.tensor_type.elem_type for one in otherwise.output]
        results = [onnx.helper.make_tensor_value_info(n, kind, None) for n, kind in zip(names, kinds, strict=True)]
        otherwise = onnx.helper.make_graph([*compare, choice], f"c{i}", [], results)
    raise AssertionError("a choice has two branches")


def _named(name: str, branches: Sequence[Any]) -> Any:
    """An input or output under its name, the batch first; a size that is not the same in all branches has a name."""
    import onnx

    kinds = [one.type.tensor_type for one in branches]
    sizes: list[Any] = ["batch"]
    for axis in range(1, len(kinds[0].shape.dim)):
        found = {kind.shape.dim[axis].dim_value for kind in kinds}  # 0: any
        sizes.append(found.pop() if len(found) == 1 and 0 not in found else f"{name}_size")
    return onnx.helper.make_tensor_value_info(name, kinds[0].elem_type, sizes)


def check_steps(built: Any, model: LanguageModel[Any], kept: list[int], lengths: Sequence[int], near: float) -> None:
    """Run the file in onnxruntime from states after some lengths, beside the model; refused where they differ."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(built.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    generator = seeded_generator(0)
    for rows, length in enumerate(lengths, 1):
        x_BT = torch.randint(0, model.vocab, (rows, length + STEPS), generator=generator)
        _, state = model.absorb(model.start(rows), x_BT[:, :length])
        given = [tensors_of(state)[i] for i in kept]
        for t in range(length, length + STEPS):
            logits_BV, state = model.step(state, x_BT[:, t])
            values = dict(zip([TOKEN, *(f"{STATE}{i}" for i in range(len(kept)))], [x_BT[:, t], *given], strict=True))
            found = _run(session, {name: values[name].contiguous().numpy() for name in names}, t)
            given = [torch.from_numpy(one) for one in found[1:]]
            for one, other in zip(found, [logits_BV, *(tensors_of(state)[i] for i in kept)], strict=True):
                _check_equal(torch.from_numpy(one), other, near, t)


def _run(session: Any, values: dict[str, Any], t: int) -> list[Any]:
    try:
        found: list[Any] = session.run(None, values)
    except Exception as error:  # onnxruntime has a class for each of its reasons
        raise UserError(f"onnxruntime cannot run the file after {t} tokens: {error}; export another format") from error
    return found


def _check_equal(found: torch.Tensor, expected: torch.Tensor, near: float, t: int) -> None:
    same = found.shape == expected.shape and found.dtype == expected.dtype
    if not same or not torch.allclose(found, expected, rtol=near, atol=near):
        raise UserError(
            f"the ONNX file would not compute what the model does: after {t} tokens onnxruntime's result differs; "
            "export another format"
        )
