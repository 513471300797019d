module edgert

go 1.26

require (
	github.com/HdrHistogram/hdrhistogram-go v1.1.2 // indirect
	github.com/alecthomas/kong v1.13.0 // indirect
	github.com/goccy/go-yaml v1.18.0 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/prometheus/client_golang v1.23.2 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	github.com/yalue/onnxruntime_go v1.27.0 // indirect
	go.bug.st/serial v1.8.0 // indirect
	golang.org/x/mod v0.18.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/tools v0.22.0 // indirect
	pgregory.net/rapid v1.2.0 // indirect
)
