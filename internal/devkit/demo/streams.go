package demo

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/examples/shards"
)

// stream is a pipeline of a tenant that is triggered again and again: quickly at first, later
// now and then.
type stream struct {
	tenant, pipeline string
	first            int   // rounds with a run each
	thin             int   // after them, only each thin-th
	atOnce           int32 // maximum number of live runs
	values           func(round int) map[string]any
}

// due reports whether it is time for another run.
func (s stream) due(round int) bool { return round < s.first || round%s.thin == 0 }

// parameters are those of the run of a round.
func (s stream) parameters(round int) (*structpb.Struct, error) {
	if s.values == nil {
		return nil, nil //nolint:nilnil // none: the defaults of the manifest
	}
	return structpb.NewStruct(s.values(round))
}

// streams are what is triggered, with the pace of a round every five seconds: hello for five
// minutes, then once a minute; shards for ten minutes, then every five. Three runs of shards for
// three tenants are 360 tasks, in front of a worker that does four at a time.
func streams() []stream {
	all := []stream{{tenant: Tenant, pipeline: Pipeline, first: 60, thin: 12, atOnce: 3, values: helloValues}}
	for _, c := range customers() {
		all = append(all, stream{tenant: c.name, pipeline: shards.Pipeline, first: 120, thin: 60, atOnce: 3, values: shardsValues})
	}
	return all
}

// helloValues are another day each time. The first run meets a bad network, so that there is an
// attempt that failed and one that did not.
func helloValues(round int) map[string]any {
	values := map[string]any{"day": time.Now().UTC().AddDate(0, 0, -round-1).Format(time.DateOnly)}
	if round == 0 {
		values["network"] = "bad"
	}
	return values
}

// shardsValues are one table after the other.
func shardsValues(round int) map[string]any {
	tables := []string{"orders", "customers", "invoices", "payments"}
	return map[string]any{"table": tables[round%len(tables)]}
}
