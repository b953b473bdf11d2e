// Command worker runs the assets of the example hello as a program of its own, as the
// worker of a real project does.
package main

import (
	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/hello"
)

func main() {
	w := servo.NewWorker(servo.WorkerOptions{
		Pools: []string{hello.Pool}, Concurrency: 4,
		Exec: &servo.ExecOptions{}, // gold/report is a shell command
	})
	hello.Register(w)
	servo.Main(w)
}
