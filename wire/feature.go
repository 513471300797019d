package wire

import "github.com/tinylib/msgp/msgp"

// Feature is an input or output of a policy, as LeRobot's policies name it in input_features and
// output_features.
type Feature struct {
	Name  string   // the key, such as observation.state
	Type  string   // STATE, VISUAL, LANGUAGE or ACTION
	Shape []int    // at most MaxDims; for a picture [C, H, W]
	DType string   // numpy's name of the values' type
	Names []string // names of a vector's values, or of the axes of another shape
}

func appendFeatures(dst []byte, features []Feature) []byte {
	dst = msgp.AppendMapHeader(dst, uint32(len(features)))
	for i := range features {
		f := &features[i]
		dst = msgp.AppendMapHeader(msgp.AppendString(dst, f.Name), 4)
		dst = msgp.AppendString(msgp.AppendString(dst, "type"), f.Type)
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "shape"), uint32(len(f.Shape)))
		for _, n := range f.Shape {
			dst = appendInt(dst, int64(n))
		}
		dst = msgp.AppendString(msgp.AppendString(dst, "dtype"), f.DType)
		dst = appendStrings(msgp.AppendString(dst, "names"), f.Names)
	}
	return dst
}

func (r *reader) features(dst []Feature) []Feature {
	dst = dst[:0]
	if r.null() {
		return dst
	}
	for range r.mapHeader(MaxNames) {
		f := Feature{Name: string(r.key())}
		for range r.mapHeader(MaxMapKeys) {
			switch string(r.key()) {
			case "type":
				f.Type = r.string(MaxNameBytes)
			case "shape":
				f.Shape = f.Shape[:0]
				for range r.arrayHeader(MaxDims) {
					f.Shape = append(f.Shape, int(r.int(1, MaxImageSide)))
				}
			case "dtype":
				f.DType = r.string(MaxNameBytes)
			case "names":
				f.Names = r.strings(f.Names, MaxNameBytes)
			default:
				r.skip(0)
			}
			if r.err != nil {
				return dst[:0]
			}
		}
		dst = append(dst, f)
	}
	return dst
}
