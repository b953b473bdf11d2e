package demo

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/cloudcost"
	"go.arco.dev/servo/examples/hello"
	"go.arco.dev/servo/examples/shards"
)

// slots is how many tasks each worker runs at once. More would make the queue of shards short.
const slots = 4

// WorkerOptions are the options of the workers of the examples.
type WorkerOptions struct {
	// Conn is the connection of a client.
	Conn grpc.ClientConnInterface
	// Name is what the names of the workers begin with.
	Name string
	// Dir is where cloudcost writes its files; see cloudcost.Options.
	Dir string
	// BlobURL is the blob store of outputs.
	BlobURL string
	// Grace is the time for running tasks when the workers stop (default 30 s).
	Grace time.Duration
	// Logger receives starts and stops of the workers; nil is silent.
	Logger *slog.Logger
}

// Workers are those that run the assets of the examples, one for each example: the queue of one
// takes no slot from the others.
func Workers(o WorkerOptions) []*servo.Worker {
	register := []struct {
		name  string
		pools []string
		with  func(w *servo.Worker)
	}{
		{"hello", []string{hello.Pool}, hello.Register},
		{"cloudcost", []string{cloudcost.Pool}, cloudcost.New(cloudcost.Options{Dir: o.Dir}).Register},
		{"shards", shards.Pools(), shards.Register},
	}
	var workers []*servo.Worker
	for _, r := range register {
		options := servo.WorkerOptions{
			Conn: o.Conn, ID: o.Name + "-" + r.name, Pools: r.pools, Concurrency: slots, Grace: o.Grace, BlobURL: o.BlobURL,
			Exec: &servo.ExecOptions{}, // gold/report of hello is a shell command
		}
		if o.Logger != nil {
			options.Logger = o.Logger.With("worker", options.ID)
		}
		w := servo.NewWorker(options)
		r.with(w)
		workers = append(workers, w)
	}
	return workers
}
