package pickle

import (
	"bytes"
	"encoding/binary"
)

// archiveHead begins each archive in the format in which torch pickles tensors. It consists of two pickles: a magic
// number and the protocol version 1001.
var archiveHead = []byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")

// storage is the memory of a tensor.
type storage struct {
	dtype string
	data  []byte
	count int // elements
}

// archive computes _load_from_bytes(archive). After archiveHead, the archive has three more pickles (the writer's
// machine, the storage as a persistent id, the list of storages), then the number of elements and the elements.
func (d *decoder) archive(args []Value) (Value, error) {
	if len(args) != 1 {
		return nil, malformed("_load_from_bytes of %d arguments, want one", len(args))
	}
	b, ok := args[0].([]byte)
	if !ok {
		return nil, malformed("_load_from_bytes of a %T, want bytes", args[0])
	}
	rest, ok := bytes.CutPrefix(b, archiveHead)
	if !ok {
		return nil, malformed("not one of torch's archives in its first form")
	}
	var parts [3]Value
	for i := range parts {
		one := &decoder{src: rest, torch: true, budget: d.budget}
		var err error
		if parts[i], err = one.run(); err != nil {
			return nil, err
		}
		rest = rest[one.at:]
	}
	machine, ok1 := parts[0].(*Dict)
	s, ok2 := parts[1].(*storage)
	_, ok3 := parts[2].(*List)
	if !ok1 || !ok2 || !ok3 {
		return nil, malformed("torch's archive holds %T, %T and %T, want a dict, a storage and a list", parts[0],
			parts[1],
			parts[2])
	}
	if little := machine.Get("little_endian"); little != true {
		return nil, malformed("torch's archive is not little-endian")
	}
	if len(rest) < 8 {
		return nil, malformed("torch's archive ends before its elements")
	}
	n, data := binary.LittleEndian.Uint64(rest), rest[8:]
	if n != uint64(s.count) || uint64(len(data)) != n*uint64(sizes[s.dtype]) {
		return nil, malformed("torch's archive has %d bytes for %d elements of type %s", len(data), n, s.dtype)
	}
	s.data = data
	return s, nil
}

// persistent reads the id of a storage: ("storage", its class, its key, its device, elements, None).
func (d *decoder) persistent() (Value, error) {
	one, err := d.pop(1)
	if err != nil {
		return nil, err
	}
	t, ok := one[0].(*Tuple)
	if !ok || len(t.Items) < 5 || t.Items[0] != Value("storage") {
		return nil, malformed("a persistent id is a %T, want a storage's tuple", one[0])
	}
	g, ok1 := t.Items[1].(global)
	n, ok2 := t.Items[4].(int64)
	device, _ := t.Items[3].(string)
	switch {
	case !ok1 || !ok2 || n < 0 || n > maxBytes:
		return nil, malformed("a storage of class %T with %s elements", t.Items[1], Brief(t.Items[4]))
	case device != "cpu":
		return nil, malformed("a storage on device %.20q, want cpu", device)
	}
	return &storage{dtype: g.name, count: int(n)}, nil
}

// tensor computes _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks). The elements of the returned
// array are in C order.
func (d *decoder) tensor(args []Value) (Value, error) {
	if len(args) < 6 {
		return nil, malformed("_rebuild_tensor_v2 of %d arguments, want 6", len(args))
	}
	s, ok := args[0].(*storage)
	if !ok {
		return nil, malformed("a tensor of a %T, want a storage", args[0])
	}
	offset, ok := args[1].(int64)
	if !ok || offset < 0 || offset > int64(s.count) {
		return nil, malformed("a tensor's offset is %s, want 0 to %d", Brief(args[1]), s.count)
	}
	shape, err := dims(args[2])
	if err != nil {
		return nil, err
	}
	stride, err := dims(args[3])
	if err != nil {
		return nil, err
	}
	a := &Array{Type: s.dtype, Shape: shape}
	a.Data, err = d.view(s, int(offset), shape, stride)
	return a, err
}

// view returns the elements of a view of the storage in C order. If they are contiguous in this order, the result is a
// part of the storage, otherwise a copy, which may not be larger than the storage.
func (d *decoder) view(s *storage, offset int, shape, stride []int) ([]byte, error) {
	if len(stride) != len(shape) {
		return nil, malformed("a tensor has %d axes and %d strides", len(shape), len(stride))
	}
	size := sizes[s.dtype]
	count := 1
	last := offset
	dense := true
	for axis := len(shape) - 1; axis >= 0; axis-- {
		dense = dense && (stride[axis] == count || shape[axis] == 1)
		if shape[axis] > s.count {
			return nil, malformed("a tensor of shape %v on %d elements", shape, s.count)
		}
		if count *= shape[axis]; count > s.count {
			return nil, malformed("a tensor of shape %v on %d elements", shape, s.count)
		}
		last += max(0, shape[axis]-1) * stride[axis]
	}
	switch {
	case count == 0:
		return nil, nil
	case last >= s.count:
		return nil, malformed("a tensor of shape %v, strides %v, offset %d on %d elements", shape, stride, offset,
			s.count)
	case dense:
		return s.data[offset*size:][: count*size : count*size], nil
	}
	return d.gather(s.data, size, offset, shape, stride)
}
