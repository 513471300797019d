package wire

import "github.com/tinylib/msgp/msgp"

// Tensor is any array that a message may have: C order, little-endian.
type Tensor struct {
	DType dtype
	Shape []int
	Data  []byte
}

// AppendTensor appends t as {dtype, shape, data}. It panics on a t whose Data does not fill its
// Shape.
//
//rt:noalloc
func AppendTensor(dst []byte, t Tensor) []byte {
	size := dtypes[t.DType].size
	for _, n := range t.Shape {
		size *= n
	}
	if t.DType == 0 || size != len(t.Data) {
		panic("wire: tensor data does not fill its shape")
	}
	return msgp.AppendBytes(appendTensorHead(dst, t.DType, t.Shape...), t.Data)
}

// ParseTensor reads one tensor object into t. Data is a part of src, and the memory of Shape is reused. present is
// false for nil.
//
//rt:noalloc
func ParseTensor(t *Tensor, src []byte) (present bool, err error) {
	r := reader{b: src}
	v, present := r.tensor()
	if err := r.close(); err != nil {
		return false, err
	}
	t.DType = v.dtype
	t.Data = v.data
	t.Shape = append(t.Shape[:0], v.shape[:v.rank]...)
	return present, nil
}
