package pickle

import "fmt"

// kind is the meaning of a name of the table. It decides which opcodes may use the name, and for which value.
type kind uint8

const (
	class       kind = iota + 1 // a dataclass: NEWOBJ, then BUILD with its attributes
	enum                        // an enumeration: REDUCE with its value
	emptyArray                  // numpy's _reconstruct: REDUCE, then BUILD with the content
	arrayType                   // numpy.ndarray, an argument of _reconstruct
	bufferArray                 // numpy's _frombuffer: REDUCE with the content
	dtypeOf                     // numpy.dtype: REDUCE, then BUILD with the byte order
	scalarOf                    // numpy's scalar: REDUCE with type and bytes
	tensorOf                    // torch's _rebuild_tensor_v2: REDUCE with a storage and its view
	storageOf                   // torch's _load_from_bytes: REDUCE with an archive
	storageType                 // a class of torch's typed storages, in an archive
	orderedDict                 // collections.OrderedDict: REDUCE without arguments
)

// global is the entry of the table for one module and name.
type global struct {
	name string // the name without its module; for a storage type, the element type
	kind kind
}

// helpers is LeRobot's module with the messages, from 0.4.0 to 0.6.1 and in main; oldHelpers is its earlier name.
const (
	helpers    = "lerobot.async_inference.helpers"
	oldHelpers = "lerobot.scripts.server.helpers"
)

// table is the closed table of names.
var table = map[[2]string]global{
	{helpers, "RemotePolicyConfig"}:            {"RemotePolicyConfig", class},
	{helpers, "TimedObservation"}:              {"TimedObservation", class},
	{helpers, "TimedAction"}:                   {"TimedAction", class},
	{"lerobot.configs.types", "PolicyFeature"}: {"PolicyFeature", class},
	{"lerobot.configs.types", "FeatureType"}:   {"FeatureType", enum},
	{"collections", "OrderedDict"}:             {"OrderedDict", orderedDict},
	{"numpy", "ndarray"}:                       {"ndarray", arrayType},
	{"numpy", "dtype"}:                         {"dtype", dtypeOf},
	{"numpy._core.multiarray", "_reconstruct"}: {"_reconstruct", emptyArray},
	{"numpy.core.multiarray", "_reconstruct"}:  {"_reconstruct", emptyArray},
	{"numpy._core.multiarray", "scalar"}:       {"scalar", scalarOf},
	{"numpy.core.multiarray", "scalar"}:        {"scalar", scalarOf},
	{"numpy._core.numeric", "_frombuffer"}:     {"_frombuffer", bufferArray},
	{"numpy.core.numeric", "_frombuffer"}:      {"_frombuffer", bufferArray},
	{"torch._utils", "_rebuild_tensor_v2"}:     {"_rebuild_tensor_v2", tensorOf},
	{"torch.storage", "_load_from_bytes"}:      {"_load_from_bytes", storageOf},
}

// archiveTable is the closed table of names in torch's archive: the storage types, with the types of their elements.
var archiveTable = map[[2]string]global{
	{"torch", "FloatStorage"}:    {"f4", storageType},
	{"torch", "DoubleStorage"}:   {"f8", storageType},
	{"torch", "HalfStorage"}:     {"f2", storageType},
	{"torch", "BFloat16Storage"}: {"bf16", storageType},
	{"torch", "ByteStorage"}:     {"u1", storageType},
	{"torch", "CharStorage"}:     {"i1", storageType},
	{"torch", "ShortStorage"}:    {"i2", storageType},
	{"torch", "IntStorage"}:      {"i4", storageType},
	{"torch", "LongStorage"}:     {"i8", storageType},
	{"torch", "BoolStorage"}:     {"b1", storageType},
}

func (d *decoder) lookup(module, name string) (Value, error) {
	names := table
	if d.torch {
		names = archiveTable
	}
	g, known := names[[2]string{module, name}]
	switch {
	case module == oldHelpers:
		return nil, fmt.Errorf("%w: %.80q of a LeRobot before 0.4: update LeRobot there", ErrGlobal, name)
	case !known:
		return nil, fmt.Errorf("%w: %.80q", ErrGlobal, module+"."+name)
	}
	return g, nil
}

// instance returns the value that the opcode NEWOBJ makes of a class: an object without attributes.
func (g global) instance(args []Value) (Value, error) {
	if g.kind != class || len(args) != 0 {
		return nil, malformed("an instance of %s with %d arguments, want a dataclass without", g.name, len(args))
	}
	return &Object{Class: g.name}, nil
}

// reduce returns the value that the opcode REDUCE makes of a name and its arguments.
func (d *decoder) reduce(g global, args []Value) (Value, error) {
	switch g.kind {
	case enum:
		if len(args) != 1 {
			return nil, malformed("%s of %d values, want one", g.name, len(args))
		}
		return &Object{Class: g.name, Args: append([]Value(nil), args...)}, nil
	case orderedDict:
		if len(args) != 0 {
			return nil, malformed("an OrderedDict of %d arguments, want none", len(args))
		}
		return &Dict{}, nil
	case emptyArray:
		return newArray(args)
	case bufferArray:
		return d.bufferedArray(args)
	case dtypeOf:
		return newDtype(args)
	case scalarOf:
		return scalar(args)
	case storageOf:
		return d.archive(args)
	case tensorOf:
		return d.tensor(args)
	}
	return nil, malformed("REDUCE of %s", g.name)
}

// build does the work of the opcode BUILD: it sets the state of the given object.
func (d *decoder) build(into, state Value) error {
	switch v := into.(type) {
	case *Object:
		dict, ok := state.(*Dict)
		if !ok || v.State != nil || v.Args != nil {
			return malformed("the state of a %s is a %T, want one dict", v.Class, state)
		}
		v.State = dict
		return nil
	case *Array:
		return d.content(v, state)
	case *dtype:
		return v.build(state)
	}
	return malformed("state for a %T", into)
}
