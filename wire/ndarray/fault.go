package ndarray

// fault is the panic of Fail.
type fault struct{ error }

// Fail ends the decoding of a message at a fault of the message. Catch, which the decoder has deferred, gets the error.
// The decoders of this package and of package pickle use both, instead of an error from each of their functions.
func Fail(err error) { panic(fault{err}) }

// Catch sets *err to the error of Fail; any other panic continues.
func Catch(err *error) {
	switch found := recover().(type) {
	case nil:
	case fault:
		*err = found.error
	default:
		panic(found)
	}
}
