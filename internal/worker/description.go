package worker

// DescribeVariable makes a worker program print its Description and exit instead of working.
const DescribeVariable = "SERVO_WORKER_DESCRIBE"

// ManifestVariable makes a worker program print the manifest that it declares and exit.
const ManifestVariable = "SERVO_WORKER_MANIFEST"

// DefaultPool is the pool of a worker that names none.
const DefaultPool = "default"

// Description lists what a worker program can execute.
type Description struct {
	Handlers []string            `json:"handlers"`        // names of registered Go functions
	Pools    []string            `json:"pools"`           // that it serves
	Exec     bool                `json:"exec"`            // it runs exec assets
	HTTP     bool                `json:"http"`            // it runs http assets
	Reads    map[string][]string `json:"reads,omitempty"` // assets that handlers read, if they declare them
}
