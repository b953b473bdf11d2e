// Package hello is the first example: six assets that turn generated orders into a small
// report. It shows what an author writes: typed functions, upstream results, progress, logs and
// a failure that is retried. `servo dev` runs it, so that its pages have content. It reads and
// writes nothing outside of Servo: its data is generated from the run's parameters and is the
// same in every run with the same parameters.
package hello

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"go.arco.dev/servo"
)

// Manifest returns the manifest that Register declares, as `servo deploy --go` deploys it.
func Manifest() ([]byte, error) {
	w := servo.NewWorker(servo.WorkerOptions{})
	Register(w)
	return w.Manifest()
}

// Pool is the queue of the tasks. It has a name of its own, so that
// the worker of this example claims no other tasks.
const Pool = "hello"

// Register declares the assets and the pipeline:
//
//	bronze/orders ────┬─▶ silver/quality ──┐
//	                  └─▶ silver/enriched ─┴─▶ gold/revenue ─▶ gold/report
//	bronze/customers ───▶ silver/enriched
func Register(w *servo.Worker) {
	pool, tags, limit := servo.Pool(Pool), servo.Tags("hello"), servo.TimeLimit(time.Minute)
	servo.Asset(w, "bronze/orders", Orders, pool, tags, limit,
		servo.Description("What the shop sold on a day."))
	servo.Asset(w, "bronze/customers", Customers, pool, tags, limit,
		servo.Description("Who buys there."))
	servo.Asset(w, "silver/enriched", Enriched, pool, tags, servo.TimeLimit(2*time.Minute),
		servo.Description("Orders with the country of their customer. Takes its time, in stages."),
		servo.Reads("bronze/orders", "bronze/customers"))
	servo.Asset(w, "silver/quality", Quality, pool, tags, limit,
		servo.Description("Asks a service about the orders, over a network that is not always there."),
		servo.Reads("bronze/orders"),
		servo.Retry(servo.RetryPolicy{MaxAttempts: 5, InitialDelay: time.Second, MaxDelay: 2 * time.Second}))
	servo.Asset(w, "gold/revenue", Revenues, pool, tags, limit,
		servo.Description("Revenue of the day by country."),
		servo.Reads("silver/enriched", "silver/quality"))
	servo.Command(w, "gold/report", []string{"sh", "-eu", "-c", report}, pool, tags, limit,
		servo.Description("A line for people, written by a shell command."),
		servo.Reads("gold/revenue"))
	w.AddPipeline(servo.Pipeline{
		Name: "hello", Description: "From made-up orders to a report.", Select: []string{"+gold/report"},
		MaxExecution: 10 * time.Minute,
		AllowOverlap: true, // a run need not wait until the one before has ended
		Parameters: []servo.Parameter{
			{Name: "day", Type: "string", Default: "2026-01-31", Description: "The day whose orders are made up."},
			{Name: "orders", Type: "integer", Default: 40, Description: "How many, up to 200."},
			{Name: "work_ms", Type: "integer", Default: 3000, Description: "How long the slow step takes."},
			{
				Name: "network", Type: "string", Default: "shaky", Enum: []any{"good", "shaky", "bad"},
				Description: "Whether the first attempt of silver/quality fails: never, in every third run, always.",
			},
		},
	})
}

// report is the command of gold/report. Its task is on standard input.
const report = `task=$(cat)
field() { printf '%s' "$task" | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
line="$(field total) euros, most of it from $(field best)"
echo "$(field day): $line"
printf '{"day": "%s", "line": "%s"}' "$(field day)" "$line" > "$SERVO_RESULT"
`

// Params are the parameters of the pipeline. Register has the defaults.
type Params struct {
	Day     string `json:"day"`     // the day whose orders these are
	Orders  int    `json:"orders"`  // how many there are
	WorkMS  int    `json:"work_ms"` // how long the slow step takes
	Network string `json:"network"` // good, shaky or bad
}

// Order is one purchase.
type Order struct {
	ID       int   `json:"id"`
	Customer int   `json:"customer"`
	Cents    int64 `json:"cents"`
}

// Customer is who buys.
type Customer struct {
	ID      int    `json:"id"`
	Country string `json:"country"`
}

const (
	customerCount = 12  // of the shop
	maxOrders     = 200 // results travel with the tasks: they stay small
)

// dice are thrown the same way for the same day and purpose.
func dice(p Params, purpose string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(p.Day + "/" + purpose)) // never fails
	return rand.New(rand.NewPCG(sum.Sum64(), 1))    //nolint:gosec // made-up data
}

// Orders makes bronze/orders: what a shop's export would hold.
func Orders(_ context.Context, task *servo.Task, p Params) ([]Order, error) {
	if p.Orders < 0 || p.Orders > maxOrders {
		return nil, &servo.Error{
			Code: servo.InvalidConfiguration, Message: fmt.Sprintf("orders is %d", p.Orders), SuggestedAction: "use 0 to 200",
		}
	}
	d := dice(p, "orders")
	orders := make([]Order, p.Orders)
	for i := range orders {
		orders[i] = Order{ID: i + 1, Customer: 1 + d.IntN(customerCount), Cents: 500 + d.Int64N(20_000)}
	}
	task.Log().Info("extracted", "day", p.Day, "orders", len(orders))
	task.Progress(servo.Progress{Phase: "EXTRACT", Fraction: 1, RecordsExtracted: int64(len(orders))})
	return orders, nil
}

// Customers makes bronze/customers.
func Customers(_ context.Context, task *servo.Task, p Params) ([]Customer, error) {
	d := dice(p, "customers")
	countries := []string{"AT", "DE", "FR", "IT"}
	customers := make([]Customer, customerCount)
	for i := range customers {
		customers[i] = Customer{ID: i + 1, Country: countries[d.IntN(len(countries))]}
	}
	task.Log().Info("extracted", "customers", len(customers))
	return customers, nil
}

// EnrichedOrder is an order with what is known about its customer.
type EnrichedOrder struct {
	Order

	Country string `json:"country"`
}

// Enriched makes silver/enriched: it joins orders and customers, in stages that take their
// time, so that there is progress to watch.
func Enriched(ctx context.Context, task *servo.Task, p Params) ([]EnrichedOrder, error) {
	orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
	if err != nil {
		return nil, err
	}
	customers, err := servo.Upstream[[]Customer](ctx, task, "bronze/customers")
	if err != nil {
		return nil, err
	}
	stages := []string{"sort", "join", "convert", "check", "write"}
	for i, stage := range stages {
		task.Log().Info("working", "stage", stage)
		task.Progress(servo.Progress{
			Phase: "TRANSFORM", Stage: stage, Fraction: float32(i) / float32(len(stages)),
			RecordsTransformed: int64(len(orders) * i / len(stages)),
		})
		if err := pause(ctx, time.Duration(p.WorkMS)*time.Millisecond/time.Duration(len(stages))); err != nil {
			return nil, err
		}
	}
	country := map[int]string{}
	for _, c := range customers {
		country[c.ID] = c.Country
	}
	enriched := make([]EnrichedOrder, len(orders))
	for i, o := range orders {
		enriched[i] = EnrichedOrder{Order: o, Country: country[o.Customer]}
	}
	return enriched, nil
}

// pause waits, unless the task is to end before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx) // cancelled, interrupted or timed out: Servo knows which
	}
}

// Check is what silver/quality has found.
type Check struct {
	Orders     int  `json:"orders"`
	Suspicious int  `json:"suspicious"`
	Passed     bool `json:"passed"`
}

// suspicious is the amount in cents from which an order needs a review.
const suspicious = 20_000

// Quality creates silver/quality: it calls a service about the orders over an unreliable network.
// A NETWORK_ERROR is retried after the delay that its policy sets.
func Quality(ctx context.Context, task *servo.Task, p Params) (Check, error) {
	orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
	if err != nil {
		return Check{}, err
	}
	if task.Attempt == 1 && fails(p.Network, task.Run) {
		task.Log().Warn("the service does not answer")
		return Check{}, servo.Fail(servo.NetworkError, errors.New("connection reset by peer"))
	}
	check := Check{Orders: len(orders)}
	for _, o := range orders {
		if o.Cents >= suspicious {
			check.Suspicious++
		}
	}
	check.Passed = check.Suspicious <= len(orders)/4
	if !check.Passed {
		task.Partial() // the run continues, and its state shows the flaw
	}
	task.Log().Info("checked", "orders", check.Orders, "suspicious", check.Suspicious)
	return check, nil
}

// fails reports whether the first attempt of a run meets a network that is down: never if it is
// good, always if it is bad, in every third run if it is shaky.
func fails(network, run string) bool {
	switch network {
	case "good":
		return false
	case "bad":
		return true
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(run)) // never fails
	return sum.Sum32()%3 == 0
}

// Revenue is what gold/revenue knows about a day.
type Revenue struct {
	Day       string           `json:"day"`
	Orders    int              `json:"orders"`
	Total     string           `json:"total"` // in euros, for people
	Best      string           `json:"best"`  // the country with the largest share
	ByCountry map[string]int64 `json:"by_country"`
	Checked   bool             `json:"checked"`
}

// Revenues makes gold/revenue from the enriched orders and the verdict about their quality.
func Revenues(ctx context.Context, task *servo.Task, p Params) (Revenue, error) {
	enriched, err := servo.Upstream[[]EnrichedOrder](ctx, task, "silver/enriched")
	if err != nil {
		return Revenue{}, err
	}
	check, err := servo.Upstream[Check](ctx, task, "silver/quality")
	if err != nil {
		return Revenue{}, err
	}
	revenue := Revenue{Day: p.Day, Orders: len(enriched), ByCountry: map[string]int64{}, Checked: check.Passed}
	var total int64
	for _, o := range enriched {
		total += o.Cents
		revenue.ByCountry[o.Country] += o.Cents
	}
	for country, cents := range revenue.ByCountry {
		if best := revenue.ByCountry[revenue.Best]; cents > best || cents == best && country < revenue.Best {
			revenue.Best = country
		}
	}
	revenue.Total = fmt.Sprintf("%d.%02d", total/100, total%100)
	task.Log().Info("summed up", "day", p.Day, "total", revenue.Total, "best", revenue.Best)
	return revenue, nil
}
