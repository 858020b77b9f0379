"""Cases that are malformed in one way each, and the line with which each is refused."""

from __future__ import annotations

# ruff: noqa: E501
# A row is a name, what it changes, and the whole line after the file's name.
# fmt: off

# A case that loads, key by key; a row replaces keys, or takes them away with None.
CASE: dict[str, str | None] = {
    "id": '"a"',
    "mesh": "{ x = 4 }",
    "inputs.x": '{ shape = [8, 2], placements = ["S(0)"] }',
    "program": '["y = sum(x, axis=0)"]',
}
GRID: dict[str, str | None] = {"mesh": "{ dp = 2, tp = 2 }"}
X = '{ shape = [8, 2], placements = ["S(0)", "R"] }'

CASES: dict[str, tuple[dict[str, str | None], str]] = {
    # What a case is.
    "no id": (
        {"id": None},
        "case[0]: found no id, wanted id, a string"),
    "id with a blank": (
        {"id": '"a b"'},
        "case[0].id: found 'a b', wanted 1 to 120 of A-Z a-z 0-9 . _ / -"),
    "id too long": (
        {"id": f'"{"a" * 121}"'},
        "case[0].id: found 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…', wanted 1 to 120 of A-Z a-z 0-9 . _ / -"),
    "id is a number": (
        {"id": "7"},
        "case[0].id: found 7, wanted 1 to 120 of A-Z a-z 0-9 . _ / -"),
    "unknown key": (
        {"progam": "[]"},
        "case \"a\": found key 'progam', wanted a known key, the nearest being 'program'"),
    "unknown key of an input": (
        {"inputs.x": '{ shape = [8], placements = ["R"], valeus = 1 }'},
        "case \"a\": inputs.x: found key 'valeus', wanted a known key, the nearest being 'values'"),
    "unknown mode": (
        {"mode": '"dry"'},
        "case \"a\": mode: found 'dry', wanted a mode: real, dry run"),
    "unknown context": (
        {"context": '"loss_paralel"'},
        "case \"a\": context: found 'loss_paralel', wanted a known context: loss_parallel"),
    "date that is none": (
        {"date": '"2025-02-30"'},
        "case \"a\": date: found '2025-02-30', wanted a date such as 2025-09-17"),
    "date with a time": (
        {"date": "2025-02-03T04:05:06"},
        'case "a": date: found 2025-02-03 04:05:06, wanted a date such as 2025-09-17'),
    "tags as a string": (
        {"tags": '"state"'},
        "case \"a\": tags: found 'state', wanted a list of strings"),
    "fresh as a number": (
        {"fresh": "1"},
        'case "a": fresh: found 1, wanted true or false'),
    "nothing to check": (
        {"inputs.x": None, "program": None},
        'case "a": found no inputs, program, mesh_steps or recipe, wanted something to check'),
    "check nothing": (
        {"check": "[]"},
        'case "a": check: found an empty list, wanted at least one name'),
    "check what is not there": (
        {"check": '["z"]'},
        "case \"a\": check[0]: found 'z', wanted an input, a result or a derived mesh: x, y"),
    "check twice": (
        {"check": '["y", "y"]'},
        "case \"a\": check[1]: found 'y' again, wanted each name once"),
    # Meshes.
    "no mesh": (
        {"mesh": None},
        'case "a": found no mesh, wanted mesh, such as {x = 4}'),
    "mesh without axes": (
        {"mesh": "{}"},
        'case "a": mesh: found no axes, wanted at least one, such as {x = 4}'),
    "mesh as a list": (
        {"mesh": "[4]"},
        'case "a": mesh: found a list of 1, wanted a table'),
    "axis of size 0": (
        {"mesh": "{ x = 0 }"},
        'case "a": mesh.x: found 0, wanted an integer of at least 1'),
    "axis of negative size": (
        {"mesh": "{ x = -4 }"},
        'case "a": mesh.x: found -4, wanted an integer of at least 1'),
    "axis of size true": (
        {"mesh": "{ x = true }"},
        'case "a": mesh.x: found true, wanted an integer of at least 1'),
    "axis of size 4.0": (
        {"mesh": "{ x = 4.0 }"},
        'case "a": mesh.x: found 4.0, wanted an integer of at least 1'),
    "axis of size nan": (
        {"mesh": "{ x = nan }"},
        'case "a": mesh.x: found nan, wanted an integer of at least 1'),
    "axis named in vain": (
        {"mesh": '{ "x y" = 4 }'},
        "case \"a\": mesh['x y']: found 'x y', wanted a name of letters, digits and _"),
    "axis named by a keyword": (
        {"mesh": "{ lambda = 4 }"},
        "case \"a\": mesh.lambda: found 'lambda', a reserved word of Python, wanted another name"),
    "too many devices": (
        {"mesh": "{ x = 128 }"},
        'case "a": mesh: found 128 devices, wanted at most 64 in mode real'),
    "too many devices to plan": (
        {"mesh": "{ x = 1024, y = 1024 }", "mode": '"dry run"'},
        'case "a": mesh: found 1,048,576 devices, wanted at most 65,536 in mode dry run'),
    "too few devices listed": (
        {"devices": "[0, 1, 2]"},
        'case "a": devices: found 3 devices, wanted 4, one for each mesh position'),
    "device twice": (
        {"devices": "[0, 1, 2, 2]"},
        'case "a": devices[3]: found device 2 again, wanted each device once'),
    "negative device": (
        {"devices": "[0, 1, 2, -1]"},
        'case "a": devices[3]: found -1, wanted a device number'),
    "device out of range": (
        {"devices": "[0, 1, 2, 64]"},
        'case "a": devices[3]: found device 64, wanted one below 64 in mode real'),
    "devices of an input": (
        {"inputs.x": X[:-1] + ", devices = [0] }", **GRID},
        'case "a": inputs.x.devices: found 1 device, wanted 4, one for each mesh position'),
    # Layouts.
    "no layout": (
        {"inputs.x": "{ shape = [8] }"},
        'case "a": inputs.x: found no layout, wanted placements or spec'),
    "two layouts": (
        {"inputs.x": '{ shape = [8], placements = ["R"], spec = "P()" }'},
        'case "a": inputs.x: found both placements and spec, wanted one of them'),
    "unknown axis": (
        {"inputs.x": '{ shape = [8], placements = { q = "S(0)" } }'},
        "case \"a\": inputs.x.placements: found axis 'q', wanted one of x"),
    "unknown axis in a spec": (
        {"inputs.x": "{ shape = [8], spec = \"P('q')\" }"},
        "case \"a\": inputs.x.spec: found axis 'q', wanted one of x"),
    "axis twice in a spec": (
        {"inputs.x": "{ shape = [8, 8], spec = \"P('x', 'x')\" }"},
        "case \"a\": inputs.x.spec: found axis 'x' used twice, wanted each axis at most once"),
    "axis split and unreduced": (
        {"inputs.x": "{ shape = [8], spec = \"P('x', unreduced={'x'})\" }"},
        "case \"a\": inputs.x.spec: found axis 'x' used twice, wanted each axis at most once"),
    "spec longer than the tensor": (
        {"inputs.x": '{ shape = [8], spec = "P(None, None)" }'},
        'case "a": inputs.x.spec: found 2 entries in P(None, None), wanted at most 1, one per dim'),
    "spec that is none": (
        {"inputs.x": '{ shape = [8], spec = "Q()" }'},
        "case \"a\": inputs.x.spec: found 'Q()', wanted a PartitionSpec such as P('dp', None) or P(unreduced={'tp'}); placements are a list, one for each mesh axis, or a table by axis"),
    "dim out of range": (
        {"inputs.x": '{ shape = [8, 2], placements = ["R", "S(4)"] }', **GRID},
        "case \"a\": inputs.x.placements[1]: found 'S(4)', wanted a dim of a 2-d tensor"),
    "dim out of range by axis": (
        {"inputs.x": '{ shape = [8, 2], placements = { tp = "S(-3)" } }', **GRID},
        "case \"a\": inputs.x.placements.tp: found 'S(-3)', wanted a dim of a 2-d tensor"),
    "too few placements": (
        {"inputs.x": '{ shape = [8], placements = ["R"] }', **GRID},
        'case "a": inputs.x.placements: found 1 placement, wanted one for each of the 2 mesh axes dp, tp'),
    "placement that is none": (
        {"inputs.x": '{ shape = [8], placements = ["T(0)"] }'},
        "case \"a\": inputs.x.placements[0]: found 'T(0)', wanted R, S(dim), SS(dim,factor) or P(reduction)"),
    "placement as a number": (
        {"inputs.x": "{ shape = [8], placements = [0] }"},
        'case "a": inputs.x.placements[0]: found 0, wanted a placement such as S(0), R or P(sum)'),
    "placements as a string": (
        {"inputs.x": '{ shape = [8], placements = "S(0)" }'},
        "case \"a\": inputs.x.placements: found 'S(0)', wanted a list or table of placements"),
    "split factor of nothing": (
        {"inputs.x": '{ shape = [8], placements = ["SS(0,3)", "S(0)"] }', **GRID},
        'case "a": inputs.x.placements[0]: found SS(0,3) for axis dp, wanted a factor that is a product of leading later axes of the same dim (tp=2)'),
    "spec of 500 characters": (
        {"inputs.x": f'{{ shape = [8], spec = "P({" " * 500})" }}'},
        'case "a": inputs.x.spec: found 503 characters, wanted a layout of at most 400'),
    "unknown reduction": (
        {"inputs.x": '{ shape = [8], placements = ["P(med)"] }'},
        "case \"a\": inputs.x.placements[0]: found reduction 'med', wanted one of sum, avg, max, min, product"),
    "layout asked of an unknown result": (
        {"to": '{ z = ["R"] }'},
        "case \"a\": to: found name 'z', wanted a result: y"),
    "layout asked of more dims": (
        {"to": "{ y = \"P(None, 'x')\" }"},
        "case \"a\": to.y: found 2 entries in P(None, 'x'), wanted at most 1, one per dim"),
    "layout asked twice": (
        {"program": '["y = redistribute(x, x=R)"]', "to": '{ y = ["S(0)"] }'},
        'case "a": to.y: found a second layout, wanted the one in the program'),
    "layout of a wrong type": (
        {"to": "{ y = 3 }"},
        'case "a": to.y: found 3, wanted placements or a PartitionSpec'),
    # Shapes, dtypes and values.
    "no shape": (
        {"inputs.x": '{ placements = ["R"] }'},
        'case "a": inputs.x: found no shape, wanted shape, a list of sizes'),
    "negative size": (
        {"inputs.x": '{ shape = [8, -2], placements = ["R"] }'},
        'case "a": inputs.x.shape[1]: found -2, wanted an integer of at least 0'),
    "size true": (
        {"inputs.x": '{ shape = [true], placements = ["R"] }'},
        'case "a": inputs.x.shape[0]: found true, wanted an integer of at least 0'),
    "size 2.0": (
        {"inputs.x": '{ shape = [2.0], placements = ["R"] }'},
        'case "a": inputs.x.shape[0]: found 2.0, wanted an integer of at least 0'),
    "size nan": (
        {"inputs.x": '{ shape = [nan], placements = ["R"] }'},
        'case "a": inputs.x.shape[0]: found nan, wanted an integer of at least 0'),
    "size beyond 64 bits": (
        {"inputs.x": '{ shape = [9223372036854775808], placements = ["R"] }'},
        'case "a": inputs.x.shape[0]: found 9223372036854775808, wanted an integer of at least 0'),
    "shape as a number": (
        {"inputs.x": '{ shape = 8, placements = ["R"] }'},
        'case "a": inputs.x.shape: found 8, wanted a list of sizes'),
    "huge shape": (
        {"inputs.x": '{ shape = [100000, 100000], placements = ["R"] }'},
        'case "a": inputs.x.shape: found 10,000,000,000 elements, wanted at most 16,777,216 in mode real'),
    "huge result": (
        {"inputs.x": '{ shape = [8192, 1], placements = ["R"] }', "inputs.w": '{ shape = [1, 8192], placements = ["R"] }', "program": '["y = add(x, w)"]'},
        'case "a": program[0]: found 67,108,864 elements, wanted at most 16,777,216 in mode real'),
    "too many dims": (
        {"inputs.x": f'{{ shape = {[1] * 9}, placements = ["R"] }}'},
        'case "a": inputs.x.shape: found 9 dims, wanted at most 8'),
    "unknown dtype": (
        {"inputs.x": '{ shape = [8], dtype = "float23", placements = ["R"] }'},
        "case \"a\": inputs.x.dtype: found 'float23', wanted a known dtype, the nearest being 'float32'"),
    "values and per_device": (
        {"inputs.x": '{ shape = [1], placements = ["R"], values = 1, per_device = [] }'},
        'case "a": inputs.x: found both values and per_device, wanted one of them'),
    "values of another shape": (
        {"inputs.x": '{ shape = [4], placements = ["R"], values = [1, 2, 3] }'},
        'case "a": inputs.x.values: found a list of 3, wanted a list of 4'),
    "ragged values": (
        {"inputs.x": '{ shape = [2, 2], placements = ["R"], values = [[1, 2], [3]] }'},
        'case "a": inputs.x.values[1]: found a list of 1, wanted a list of 2'),
    "values nested too deeply": (
        {"inputs.x": '{ shape = [2], placements = ["R"], values = [1, [2]] }'},
        'case "a": inputs.x.values[1]: found a list of 1, wanted a number'),
    "values as a word": (
        {"inputs.x": '{ shape = [2], placements = ["R"], values = "ones" }'},
        "case \"a\": inputs.x.values: found 'ones', wanted 'arange', a number or nested lists"),
    "300 in uint8": (
        {"inputs.x": '{ shape = [2], dtype = "uint8", placements = ["R"], values = [1, 300] }'},
        'case "a": inputs.x.values[1]: found 300, wanted a whole number from 0 to 255, for uint8'),
    "1.5 in int32": (
        {"inputs.x": '{ shape = [1], dtype = "int32", placements = ["R"], values = [1.5] }'},
        'case "a": inputs.x.values[0]: found 1.5, wanted a whole number from -2147483648 to 2147483647, for int32'),
    "nan in int32": (
        {"inputs.x": '{ shape = [1], dtype = "int32", placements = ["R"], values = [nan] }'},
        'case "a": inputs.x.values[0]: found nan, wanted a whole number from -2147483648 to 2147483647, for int32'),
    "true in int32": (
        {"inputs.x": '{ shape = [1], dtype = "int32", placements = ["R"], values = [true] }'},
        'case "a": inputs.x.values[0]: found true, wanted a number'),
    "2 in bool": (
        {"inputs.x": '{ shape = [1], dtype = "bool", placements = ["R"], values = [2] }'},
        'case "a": inputs.x.values[0]: found 2, wanted a whole number from 0 to 1, for bool'),
    "257 in bfloat16": (
        {"inputs.x": '{ shape = [1], dtype = "bfloat16", placements = ["R"], values = [257] }'},
        'case "a": inputs.x.values[0]: found 257, wanted a number that bfloat16 has'),
    "1e39 in float32": (
        {"inputs.x": '{ shape = [], placements = ["R"], values = 1e39 }'},
        'case "a": inputs.x.values: found 1e+39, wanted a number that float32 has'),
    "real and imag in float32": (
        {"inputs.x": '{ shape = [], placements = ["R"], values = { real = 1, imag = 2 } }'},
        'case "a": inputs.x.values: found real and imag, wanted real numbers, for float32'),
    "real without imag": (
        {"inputs.x": '{ shape = [], dtype = "complex64", placements = ["R"], ' "values = { real = 1 } }" },
        'case "a": inputs.x.values: found no imag, wanted both real and imag'),
    "arange over too many for uint8": (
        {"inputs.x": '{ shape = [300], dtype = "uint8", placements = ["R"] }'},
        'case "a": inputs.x.values: found arange over 300 elements, wanted at most 256, for uint8'),
    "partial bool": (
        {"inputs.x": '{ shape = [2], dtype = "bool", placements = ["P"] }'},
        'case "a": inputs.x.values: found a partial input of bool, wanted per_device addends'),
    "partial average of integers": (
        {"inputs.x": '{ shape = [2], dtype = "int32", placements = ["P(avg)"] }'},
        'case "a": inputs.x.placements: found a pending avg of int32, wanted a dtype that has averages'),
    "partial maximum of complex": (
        {"inputs.x": '{ shape = [2], dtype = "complex64", placements = ["P(max)"] }'},
        'case "a": inputs.x.placements: found a pending max of complex64, wanted a dtype with an order'),
    "addends that would be rounded": (
        {"inputs.x": '{ shape = [1], placements = ["P"], values = [0.1] }'},
        'case "a": inputs.x.values: found a value whose addends would not sum exactly, wanted per_device addends'),
    "too few local arrays": (
        {"inputs.x": '{ shape = [4], placements = ["S(0)"], per_device = [[0], [1], [2]] }'},
        'case "a": inputs.x.per_device: found 3 arrays, wanted 4, one for each device'),
    "local array off the chunk rule": (
        {"inputs.x": '{ shape = [4], placements = ["S(0)"], per_device = [[0, 1], [2], [3], []] }'},
        'case "a": inputs.x.per_device[0]: found a list of 2, wanted a list of 1'),
    "irregular without per_device": (
        {"inputs.x": '{ shape = [4], placements = ["S(0)"], irregular = true }'},
        'case "a": inputs.x: found irregular shards, wanted per_device, with one shard for each device'),
    "irregular shard of fewer dims": (
        {"inputs.x": '{ shape = [4, 1], placements = ["S(0)"], irregular = true, ' "per_device = [[[1]], [2], [[3]], [[4]]] }" },
        'case "a": inputs.x.per_device[1]: found a 1-d array, wanted a 2-d one'),
    "values in a dry run": (
        {"mode": '"dry run"', "inputs.x": '{ shape = [4], placements = ["R"], values = 1 }'},
        'case "a": inputs.x: found values in a dry run, wanted none: a dry run has no data'),
    # Programs.
    "step that is no Python": (
        {"program": '["y = matmul(x,, w)"]'},
        "case \"a\": program[0]: found 'y = matmul(x,, w)': invalid syntax at column 14, wanted a step such as 'y = matmul(x, w)'"),
    "step without a result": (
        {"program": '["sum(x)"]'},
        "case \"a\": program[0]: found 'sum(x)', wanted a step such as 'y = matmul(x, w)'"),
    "step without an op": (
        {"program": '["y = x"]'},
        "case \"a\": program[0]: found 'x' at column 5, wanted an op such as matmul(x, w)"),
    "step with a subscript": (
        {"program": '["y = sum(x[0])"]'},
        "case \"a\": program[0]: found 'x[0]' at column 9, wanted a name, a finite number or an op"),
    "step with an unknown sign": (
        {"program": '["y = x % 2"]'},
        "case \"a\": program[0]: found 'x % 2' at column 5, wanted a name, a finite number or an op"),
    "two steps in one": (
        {"program": '["y = sum(x); z = sum(x)"]'},
        "case \"a\": program[0]: found 'y = sum(x); z = sum(x)', wanted a step such as 'y = matmul(x, w)'"),
    "step nested too deeply": (
        {"program": f'["y = {"-" * 990}x"]'},
        "case \"a\": program[0]: found 'y = -------------------------------------------------------------------------…', nested too deeply to read, wanted a step such as 'y = matmul(x, w)'"),
    "step too long": (
        {"program": f'["y = sum({" " * 1000}x)"]'},
        'case "a": program[0]: found a step of 1,010 characters, wanted at most 1,000'),
    "step as a number": (
        {"program": "[1]"},
        'case "a": program[0]: found 1, wanted a string or a list [result, op, arguments, parameters]'),
    "step cut short": (
        {"program": '[["y", "sum"]]'},
        'case "a": program[0]: found 2 parts, wanted [result, op, arguments] or with a fourth, parameters'),
    "program as a string": (
        {"program": '"y = sum(x)"'},
        "case \"a\": program: found 'y = sum(x)', wanted a list of steps"),
    "unknown op": (
        {"program": '["y = matmull(x, x)"]'},
        "case \"a\": program[0]: found op 'matmull', wanted a known op, the nearest being 'matmul'"),
    "too many arguments": (
        {"program": '["y = sum(x, x)"]'},
        'case "a": program[0]: found 2 arguments, wanted 1 for sum: x'),
    "numbers only": (
        {"program": '["y = add(1, 2)"]'},
        'case "a": program[0]: found numbers only, wanted at least one input or result as an argument'),
    "number that the op does not take": (
        {"program": '["y = matmul(x, 2.5)"]'},
        'case "a": program[0]: found number 2.5, wanted names only: matmul takes no numbers'),
    "infinite number": (
        {"program": '["y = add(x, 1e999)"]'},
        'case "a": program[0]: found inf, wanted a finite number of 64 bits'),
    "number beyond 64 bits": (
        {"program": '["y = add(x, 9223372036854775808)"]'},
        'case "a": program[0]: found 9223372036854775808, wanted a finite number of 64 bits'),
    "unknown name": (
        {"program": '["y = sum(w)"]'},
        "case \"a\": program[0]: found 'w', wanted an input or an earlier result: x"),
    "name before it is made": (
        {"program": '["y = sum(z)", "z = sum(x)"]'},
        "case \"a\": program[0]: found 'z' before it is made, wanted an input or an earlier result: x"),
    "result named twice": (
        {"program": '["y = sum(x)", "y = sum(x)"]'},
        "case \"a\": program[1]: found 'y' again, wanted a new name for the result"),
    "result named like an input": (
        {"program": '["x = sum(x)"]'},
        "case \"a\": program[0]: found 'x' again, wanted a new name for the result"),
    "result named by a keyword": (
        {"program": '[["if", "sum", ["x"], {}]]'},
        "case \"a\": program[0][0]: found 'if', a reserved word of Python, wanted another name"),
    "unknown parameter": (
        {"program": '["y = sum(x, dim=0)"]'},
        "case \"a\": program[0]: found parameter 'dim', wanted a parameter of sum: axis, keepdims"),
    "missing parameter": (
        {"program": '["y = einsum(x, x)"]'},
        'case "a": program[0]: found no subscripts, wanted einsum with subscripts'),
    "axis true": (
        {"program": '["y = sum(x, axis=true)"]'},
        'case "a": program[0]: found axis = true, wanted an integer or a list of integers'),
    "keepdims 1": (
        {"program": '["y = sum(x, keepdims=1)"]'},
        'case "a": program[0]: found keepdims = 1, wanted true or false'),
    "parameter that is no literal": (
        {"program": '["y = sum(x, axis=x)"]'},
        "case \"a\": program[0]: found 'x' at column 17, wanted a literal: tensors are given by position, and keywords take literals"),
    "redistribute to nothing": (
        {"program": '["y = redistribute(x)"]'},
        'case "a": program[0]: found no layout, wanted a PartitionSpec, or placements by axis'),
    "redistribute by an unknown axis": (
        {"program": '["y = redistribute(x, q=R)"]'},
        "case \"a\": program[0]: found axis 'q', wanted one of x"),
    "redistribute by two notations": (
        {"program": "[\"y = redistribute(x, P('x'), x=R)\"]"},
        'case "a": program[0]: found "redistribute(x, P(\'x\'), x=R)" at column 5, wanted one layout: P(…), or placements by axis'),
    "redistribute in a list": (
        {"program": '[["y", "redistribute", ["x"], { placements = ["S(2)"] }]]'},
        "case \"a\": program[0][3].placements[0]: found 'S(2)', wanted a dim of a 2-d tensor"),
    "axis out of range": (
        {"program": '["y = sum(x, axis=2)"]'},
        'case "a": program[0]: found float32[8, 2], wanted arguments that sum takes'),
    "sizes that do not meet": (
        {"inputs.w": '{ shape = [3, 5], placements = ["R"] }', "program": '["y = matmul(x, w)"]'},
        'case "a": program[0]: found float32[8, 2], float32[3, 5], wanted arguments that matmul takes'),
    "large sizes that do not meet": (
        {"inputs.x": '{ shape = [70, 80], placements = ["R"] }', "inputs.w": '{ shape = [90, 70], placements = ["R"] }', "program": '["y = matmul(x, w)"]'},
        'case "a": program[0]: found float32[70, 80], float32[90, 70], wanted arguments that matmul takes'),
    "dtype that the op has not": (
        {"inputs.x": '{ shape = [2], dtype = "bool", placements = ["R"] }', "program": '["y = negative(x)"]'},
        'case "a": program[0]: found bool[2], wanted arguments that negative takes'),
    # Expectations.
    "right of an unknown name": (
        {"right": "{ z = 1 }"},
        "case \"a\": right: found name 'z', wanted an input or a result: x, y"),
    "right of another shape": (
        {"right": "{ y = [1, 2, 3] }"},
        'case "a": right.y: found a list of 3, wanted a list of 2'),
    "shards of an unknown name": (
        {"shards": "{ z = [] }"},
        "case \"a\": shards: found name 'z', wanted an input or a result: x, y"),
    "too few shards": (
        {"shards": "{ y = [[1, 2]] }"},
        'case "a": shards.y: found a list of 1, wanted 4, one for each device'),
    "shard of another shape": (
        {"shards": "{ x = [[[0, 1]], [[2, 3]], [], []] }"},
        'case "a": shards.x[0]: found a list of 1, wanted a list of 2'),
    "offset of too few dims": (
        {"offsets": "{ x = [[0], [2], [4], [6]] }"},
        'case "a": offsets.x[0]: found 1 integer, wanted 2, one per tensor dim'),
    "mesh of an unknown name": (
        {"meshes": "{ m = [] }"},
        "case \"a\": meshes: found name 'm', wanted the result of a mesh step: there is none"),
    "layout of an unknown name": (
        {"layouts": '{ z = ["R"] }'},
        "case \"a\": layouts: found name 'z', wanted an input or a result: x, y"),
    "count of an unknown name": (
        {"counts": "{ z = {} }"},
        "case \"a\": counts: found name 'z', wanted a step y, or y/full: x, y"),
    "unknown kind of collective": (
        {"sufficient": "{ all-gater = 1 }"},
        "case \"a\": sufficient: found key 'all-gater', wanted a known key, the nearest being 'all-gather'"),
    "count true": (
        {"sufficient": "{ all-gather = true }"},
        'case "a": sufficient.all-gather: found true, wanted a count of at least 0'),
    "negative tolerance": (
        {"tolerance": "-1e-3"},
        'case "a": tolerance: found -0.001, wanted a finite number of at least 0'),
    "tolerance of nothing": (
        {"tolerance": '{ why = "sums" }'},
        'case "a": tolerance: found neither rtol nor atol, wanted at least one of them'),
    "right in a dry run": (
        {"mode": '"dry run"', "right": "{ y = 1 }"},
        'case "a": found right in a dry run, wanted none: a dry run has no data'),
}
