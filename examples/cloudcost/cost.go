package cloudcost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo"
)

// extractService is the asset that cost/extract fans out to.
const extractService = "cost/extract_service"

// CostExtract makes cost/extract: it asks the cloud for its services and adds a task for each
// to the run. cost/transform waits for all of them.
func (a *Assets) CostExtract(ctx context.Context, task *servo.Task, p Params) (Extract, error) {
	cloud, err := p.signIn()
	if err != nil {
		return Extract{}, err
	}
	// The tasks have the parameters of the run; what is theirs alone is in the partition.
	last, services := a.last(p), cloud.Services()
	parts := make([]servo.Mapped, len(services))
	for i, service := range services {
		parts[i] = servo.Mapped{Asset: extractService, Partition: last + "/" + service}
	}
	if _, err := task.FanOut(ctx, parts, servo.Barrier()); err != nil {
		return Extract{}, err
	}
	task.Log().Info("asked for services", "provider", p.Provider, "account", p.Account, "services", len(services), "until", last)
	return Extract{Services: len(services)}, nil
}

// Extract is what cost/extract knows.
type Extract struct {
	Services int `json:"services"` // each is a task of cost/extract_service
}

// ServiceCharges is what cost/extract_service gives: where the charges of a service are.
type ServiceCharges struct {
	Service string `json:"service"`
	Until   string `json:"until"` // the last day
	Micros  int64  `json:"micros"`
	File    File   `json:"file"`
}

// CostExtractService makes cost/extract_service: the charges of one service, day by day. Now
// and then the cloud has had too many calls. RATE_LIMITED is worth another try, and the
// manifest sets the delay.
func (a *Assets) CostExtractService(ctx context.Context, task *servo.Task, p Params) (ServiceCharges, error) {
	cloud, err := p.signIn()
	if err != nil {
		return ServiceCharges{}, err
	}
	last, service, _ := strings.Cut(task.Partition, "/")
	days, err := daysUntil(last, p.Days)
	if err != nil {
		return ServiceCharges{}, err
	}
	if cloud.limits(task.Run, service, task.Attempt) {
		task.Log().Warn("turned down", "service", service, "attempt", task.Attempt)
		return ServiceCharges{}, servo.Fail(servo.RateLimited, errors.New("429 from "+p.Provider+": too many calls for "+service))
	}
	found := ServiceCharges{Service: service, Until: last}
	var charges []Charge
	for i, day := range days {
		if err := p.wait(ctx); err != nil {
			return ServiceCharges{}, err
		}
		for _, charge := range cloud.Charges(service, day) {
			charges, found.Micros = append(charges, charge), found.Micros+charge.Micros
		}
		task.Progress(servo.Progress{Phase: "EXTRACT", Stage: day, Fraction: share(i+1, len(days)), RecordsExtracted: int64(len(charges))})
	}
	found.File, err = write(a.lake, task, fileOf(task, p, "cost", "extract-"+service), charges)
	task.Log().Info("extracted", "service", service, "charges", len(charges), "bytes", found.File.Bytes)
	return found, err
}

// Cost is what a team has spent on a service on a day.
type Cost struct {
	Day     string `json:"day"`
	Service string `json:"service"`
	Team    string `json:"team"`
	Micros  int64  `json:"micros"`
}

// Costs is what cost/transform gives.
type Costs struct {
	Until   string `json:"until"`
	Charges int    `json:"charges"` // how many were read
	Micros  int64  `json:"micros"`
	File    File   `json:"file"`
}

// untagged is the team of charges without a tag.
const untagged = "untagged"

// CostTransform makes cost/transform: it adds the charges of all services up by day, service
// and team.
func (a *Assets) CostTransform(ctx context.Context, task *servo.Task, p Params) (Costs, error) {
	extract, err := servo.Upstream[Extract](ctx, task, "cost/extract")
	if err != nil {
		return Costs{}, err
	}
	var costs Costs
	var extracted int64 // as the extracts have counted
	done, sums := 0, map[Cost]int64{}
	for part, err := range servo.MappedResults[ServiceCharges](ctx, task, extractService) {
		if err != nil {
			return Costs{}, err
		}
		charges, err := read[Charge](a.lake, part.Value.File)
		if err != nil {
			return Costs{}, err
		}
		for _, c := range charges {
			sums[Cost{Day: c.Day, Service: c.Service, Team: cmp.Or(c.Team, untagged)}] += c.Micros
			costs.Micros += c.Micros
		}
		done++
		costs.Until, costs.Charges, extracted = part.Value.Until, costs.Charges+len(charges), extracted+part.Value.Micros
		task.Progress(servo.Progress{
			Phase: "TRANSFORM", Stage: "add up", Fraction: share(done, extract.Services+1), RecordsTransformed: int64(costs.Charges),
		})
	}
	if done != extract.Services || costs.Micros != extracted {
		return Costs{}, doesNotAddUp("%d of %d services, %s of %s dollars", done, extract.Services, dollars(costs.Micros), dollars(extracted))
	}
	rows := make([]Cost, 0, len(sums))
	for cost, micros := range sums {
		cost.Micros = micros
		rows = append(rows, cost)
	}
	slices.SortFunc(rows, func(x, y Cost) int {
		return cmp.Or(cmp.Compare(x.Day, y.Day), cmp.Compare(x.Service, y.Service), cmp.Compare(x.Team, y.Team))
	})
	task.Progress(servo.Progress{Phase: "TRANSFORM", Stage: "write", Fraction: 1, RecordsTransformed: int64(costs.Charges)})
	costs.File, err = write(a.lake, task, fileOf(task, p, "cost", "transform"), rows)
	task.Log().Info("added up", "charges", costs.Charges, "rows", len(rows), "dollars", dollars(costs.Micros))
	return costs, err
}

// Statement is what cost/load gives: the account's costs at a glance.
type Statement struct {
	Provider string           `json:"provider"`
	Account  string           `json:"account"`
	Until    string           `json:"until"`
	Days     int              `json:"days"`
	Total    string           `json:"total"` // in dollars, for people
	Micros   int64            `json:"micros"`
	Services map[string]int64 `json:"services"` // micros
	Teams    map[string]int64 `json:"teams"`    // micros
}

// CostLoad makes cost/load: the statement that finance reads. It is written only if it adds
// up to what was transformed.
func (a *Assets) CostLoad(ctx context.Context, task *servo.Task, p Params) (Statement, error) {
	costs, err := servo.Upstream[Costs](ctx, task, "cost/transform")
	if err != nil {
		return Statement{}, err
	}
	task.Progress(servo.Progress{Phase: "LOAD", Stage: "read", Fraction: 0.1})
	rows, err := read[Cost](a.lake, costs.File)
	if err != nil {
		return Statement{}, err
	}
	statement := Statement{
		Provider: p.Provider, Account: p.Account, Until: costs.Until, Days: p.Days, Services: map[string]int64{}, Teams: map[string]int64{},
	}
	for _, row := range rows {
		statement.Micros += row.Micros
		statement.Services[row.Service] += row.Micros
		statement.Teams[row.Team] += row.Micros
	}
	if statement.Micros != costs.Micros {
		return Statement{}, doesNotAddUp("%s of %s dollars", dollars(statement.Micros), dollars(costs.Micros))
	}
	statement.Total = dollars(statement.Micros)
	task.Progress(servo.Progress{Phase: "LOAD", Stage: "write", Fraction: 0.9, RecordsLoaded: int64(len(rows))})
	file, err := write(a.lake, task, fileOf(task, p, "cost", "statement"), []Statement{statement})
	task.Log().Info("stated", "account", p.Account, "until", statement.Until, "dollars", statement.Total, "file", file.Name)
	return statement, err
}

// doesNotAddUp is the failure of a step that has lost something on the way.
func doesNotAddUp(format string, args ...any) error {
	return &servo.Error{Code: servo.CheckFailed, Message: "it does not add up: " + fmt.Sprintf(format, args...), SuggestedAction: "servo runs retry --all"}
}

// dollars is an amount for people, rounded to cents.
func dollars(micros int64) string {
	cents := (micros + 5_000) / 10_000
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}
