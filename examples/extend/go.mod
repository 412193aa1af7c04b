module example.com/extend

go 1.26.0

require (
	github.com/helixagents/helix v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)

replace github.com/helixagents/helix => ../..
