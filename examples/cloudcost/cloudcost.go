// Package cloudcost is the example of a platform team: two pipelines, cost_billing and
// security_audit, that many tenants run for their accounts at GCP, AWS and AZURE. It shows
// extract, transform and load with stages and progress, a fan-out, rate-limited calls that
// are retried, and data in files to which results refer.
// It never calls a cloud: the answers of the clouds are generated, the same for the same account
// and day.
package cloudcost

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"go.arco.dev/servo"
)

// Manifest declares the assets and the pipelines cost_billing and security_audit.
//
//go:embed servo.yaml
var Manifest []byte

// Configs are what three tenants have scheduled: configs/TENANT/NAME.yaml.
//
//go:embed configs
var Configs embed.FS

// Pool is the queue that the manifest puts the tasks into.
const Pool = "cloudcost"

// Options are the options of the assets.
type Options struct {
	// Dir is the directory of files (default: servo-cloudcost below the temporary directory).
	// Workers on several machines need a shared one.
	Dir string
	// Now is the clock (default: the machine's).
	Now func() time.Time
}

// Assets are the functions of both pipelines.
type Assets struct {
	lake lake
	now  func() time.Time
}

// New makes the functions. Nothing is written before one of them runs.
func New(o Options) *Assets {
	a := &Assets{lake: lake{dir: cmp.Or(o.Dir, filepath.Join(os.TempDir(), "servo-cloudcost"))}, now: o.Now}
	if a.now == nil {
		a.now = time.Now
	}
	return a
}

// Register gives a worker the functions, under the keys of the manifest.
func (a *Assets) Register(w *servo.Worker) {
	servo.Asset(w, "cost/extract", a.CostExtract)
	servo.Asset(w, extractService, a.CostExtractService)
	servo.Asset(w, "cost/transform", a.CostTransform)
	servo.Asset(w, "cost/load", a.CostLoad)

	servo.Asset(w, "security/extract", a.SecurityExtract)
	servo.Asset(w, "security/transform", a.SecurityTransform)
	servo.Asset(w, "security/load", a.SecurityLoad)
}

// Params are the parameters of both pipelines. The manifest has the defaults.
type Params struct {
	Provider    string `json:"provider"`    // GCP, AWS or AZURE
	Account     string `json:"account"`     // of the tenant at the provider
	Days        int    `json:"days"`        // how many
	Until       string `json:"until"`       // the last of them (default: yesterday)
	Credentials string `json:"credentials"` // valid or expired
	LatencyMS   int    `json:"latency_ms"`  // how long the cloud takes for one answer
}

// The limits of parameters that a manifest cannot express. They keep files and runs small.
const (
	maxDays      = 31
	maxLatencyMS = 10_000
)

var accountName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// check refuses parameters with which every attempt would fail.
func (p Params) check() error {
	wrong := func(message, action string) error {
		return &servo.Error{Code: servo.InvalidConfiguration, Message: message, SuggestedAction: action}
	}
	switch {
	case !slices.Contains(Providers(), p.Provider):
		return wrong(fmt.Sprintf("unknown provider %.40q", p.Provider), "use GCP, AWS or AZURE")
	case !accountName.MatchString(p.Account):
		return wrong(fmt.Sprintf("%.60q is no account", p.Account), "use 1 to 40 lower case letters, digits and dashes")
	case p.Days < 1 || p.Days > maxDays:
		return wrong(fmt.Sprintf("days is %d", p.Days), fmt.Sprintf("use 1 to %d", maxDays))
	case p.LatencyMS < 0 || p.LatencyMS > maxLatencyMS:
		return wrong(fmt.Sprintf("latency_ms is %d", p.LatencyMS), fmt.Sprintf("use 0 to %d", maxLatencyMS))
	case p.Until == "":
		return nil
	}
	if _, err := time.Parse(time.DateOnly, p.Until); err != nil {
		return wrong(fmt.Sprintf("until is %.20q", p.Until), "use a day such as 2026-01-31, or leave it out")
	}
	return nil
}

// signIn checks the parameters and opens the account at the cloud.
func (p Params) signIn() (Cloud, error) {
	if err := p.check(); err != nil {
		return Cloud{}, err
	}
	if p.Credentials == "expired" {
		return Cloud{}, &servo.Error{ // final: waiting does not renew a key
			Code: servo.AuthenticationFailed, Message: fmt.Sprintf("%s does not accept the key of account %s: it has expired", p.Provider, p.Account),
			SuggestedAction: "renew the key, then resume the config",
		}
	}
	return Cloud{Provider: p.Provider, Account: p.Account}, nil
}

// last is the last day to look at. Only the first asset of a pipeline asks: what comes after
// it reads the day from its result, so that a run over midnight stays with one answer.
func (a *Assets) last(p Params) string {
	return cmp.Or(p.Until, a.now().UTC().AddDate(0, 0, -1).Format(time.DateOnly))
}

// daysUntil are as many days as asked for, the last one included, in order.
func daysUntil(last string, count int) ([]string, error) {
	day, err := time.Parse(time.DateOnly, last)
	if err != nil {
		return nil, &servo.Error{Code: servo.InvalidPartition, Message: fmt.Sprintf("%.20q is no day", last), Err: err}
	}
	days := make([]string, count)
	for i := range days {
		days[i] = day.AddDate(0, 0, i+1-count).Format(time.DateOnly)
	}
	return days, nil
}

// wait is the time that the cloud takes for an answer, unless the task is to end before.
func (p Params) wait(ctx context.Context) error {
	timer := time.NewTimer(time.Duration(p.LatencyMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx) // cancelled, interrupted or timed out: Servo knows which
	case <-timer.C:
		return nil
	}
}

// share is how much of a whole is done, for progress.
func share(done, all int) float32 { return float32(done) / float32(all) }
