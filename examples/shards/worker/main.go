// Command worker runs the assets of the example shards, four at a time: start a second one, and
// the queue is done twice as fast.
package main

import (
	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/shards"
)

func main() {
	w := servo.NewWorker(servo.WorkerOptions{Pools: shards.Pools(), Concurrency: 4})
	shards.Register(w)
	servo.Main(w)
}
