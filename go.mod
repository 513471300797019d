module github.com/edge-rt/edge-rt

go 1.26

require (
	github.com/BooleanCat/option v0.1.0
	github.com/alecthomas/kong v1.13.0
	github.com/eclipse-zenoh/zenoh-go v1.9.0
	github.com/foxglove/mcap/go/mcap v1.7.3
	github.com/goccy/go-yaml v1.18.0
	github.com/klauspost/compress v1.18.0
	github.com/parquet-go/parquet-go v0.32.0
	github.com/pierrec/lz4/v4 v4.1.22
	github.com/prometheus/client_golang v1.23.2
	github.com/prometheus/client_model v0.6.2
	github.com/prometheus/procfs v0.16.1
	github.com/tinylib/msgp v1.6.5
	github.com/yalue/onnxruntime_go v1.27.0
	go.bug.st/serial v1.8.0
	golang.org/x/sys v0.43.0
	google.golang.org/grpc v1.79.3
	pgregory.net/rapid v1.2.0
)

require (
	github.com/andybalholm/brotli v1.1.1 // indirect
	github.com/coder/websocket v1.8.15 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/parquet-go/bitpack v1.0.0 // indirect
	github.com/parquet-go/jsonlite v1.0.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	github.com/twpayne/go-geom v1.6.1 // indirect
	golang.org/x/net v0.48.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/pixiv/go-libjpeg v0.0.0-20190822045933-3da21a74767d
	github.com/prometheus/common v0.66.1
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	google.golang.org/protobuf v1.36.10
)
