// Command worker runs the assets of the example cloudcost.
package main

import (
	"flag"

	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/cloudcost"
)

func main() {
	dir := flag.String("dir", "", "where files are written (default servo-cloudcost below the temporary directory)")
	flag.Parse()

	w := servo.NewWorker(servo.WorkerOptions{Pools: []string{cloudcost.Pool}, Concurrency: 8})
	cloudcost.New(cloudcost.Options{Dir: *dir}).Register(w)
	servo.Main(w)
}
