package worker

// DescribeVariable makes a worker program print its Description and end, in place of working.
const DescribeVariable = "SERVO_WORKER_DESCRIBE"

// DefaultPool is the pool of a worker that names none.
const DefaultPool = "default"

// Description is what a worker program can run.
type Description struct {
	Handlers []string            `json:"handlers"`        // names of registered Go functions
	Pools    []string            `json:"pools"`           // that it serves
	Exec     bool                `json:"exec"`            // it runs exec assets
	HTTP     bool                `json:"http"`            // it runs http assets
	Reads    map[string][]string `json:"reads,omitempty"` // assets that handlers read, as far as they say so
}
