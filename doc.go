// Package servo is what the authors of assets import: it turns Go functions into assets and
// runs them in a worker.
//
//	func main() {
//		w := servo.NewWorker(servo.WorkerOptions{Server: "127.0.0.1:8081", Concurrency: 8})
//		servo.Asset(w, "gold/revenue", revenue)
//		servo.Main(w)
//	}
//
//	func revenue(ctx context.Context, task *servo.Task, p Params) (Revenue, error) {
//		orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
//		if err != nil {
//			return Revenue{}, err
//		}
//		…
//	}
//
// The asset's place in the DAG, its pool, timeout and retries are declared in the manifest
// that is deployed; this package holds the code alone. The parameters of a run are decoded
// into the function's last argument, what it returns is encoded as JSON, kept with the task
// and given to the assets downstream.
//
// # How a task ends
//
// A function that returns no error has succeeded. An error fails the attempt; its code says
// whether there is another one (see Fail and Error). A panic is an error of the function.
// The function's context ends when the task should: context.Cause says why (ErrCancelled,
// ErrInterrupted, ErrTimedOut, ErrLeaseLost). A function may be executed more than once, so
// what it writes should be written the same the second time.
//
// This package decides nothing about runs: which task is next, and whether a failed one is
// tried again, is the server's to say.
package servo
