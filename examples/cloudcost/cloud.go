package cloudcost

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Cloud is one account at one provider. It replaces the provider's API: its answers depend only on
// the provider, the account and the day.
type Cloud struct {
	Provider string
	Account  string
}

// Providers are the clouds that there are.
func Providers() []string { return []string{"AWS", "AZURE", "GCP"} }

// Services are what the provider sells.
func (c Cloud) Services() []string {
	switch c.Provider {
	case "AWS":
		return []string{"CloudFront", "EC2", "Lambda", "RDS", "S3"}
	case "AZURE":
		return []string{"BlobStorage", "Functions", "SQLDatabase", "VirtualMachines"}
	case "GCP":
		return []string{"BigQuery", "CloudRun", "CloudStorage", "ComputeEngine"}
	}
	return nil
}

// Regions are where the provider sells it.
func (c Cloud) Regions() []string {
	switch c.Provider {
	case "AWS":
		return []string{"eu-central-1", "sa-east-1", "us-east-1"}
	case "AZURE":
		return []string{"australiaeast", "brazilsouth", "westeurope"}
	case "GCP":
		return []string{"australia-southeast1", "europe-west3", "southamerica-east1"}
	}
	return nil
}

// Charge is a line of a bill.
type Charge struct {
	Day     string `json:"day"`
	Service string `json:"service"`
	Region  string `json:"region"`
	Team    string `json:"team,omitempty"` // by the tag of what was used, if it has one
	Micros  int64  `json:"micros"`         // millionths of a dollar: sums of whole numbers are exact
}

// Charges is what a service has cost on a day: three to ten lines.
func (c Cloud) Charges(service, day string) []Charge {
	d := c.dice("charges", service, day)
	regions, teams := c.Regions(), []string{"data", "search", "web", ""}
	charges := make([]Charge, 3+d.IntN(8))
	for i := range charges {
		charges[i] = Charge{
			Day: day, Service: service, Region: regions[d.IntN(len(regions))], Team: teams[d.IntN(len(teams))], Micros: 10_000 + d.Int64N(90_000_000),
		}
	}
	return charges
}

// Change is a line of an audit log.
type Change struct {
	Day      string `json:"day"`
	Region   string `json:"region"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
}

// Changes is what was changed in a region on a day: nothing to six lines, the worst the rarest.
func (c Cloud) Changes(region, day string) []Change {
	d := c.dice("changes", region, day)
	kinds := []string{"tag-edited", "disk-resized", "port-opened", "key-created", "admin-granted", "bucket-made-public"}
	changes := make([]Change, d.IntN(7))
	for i := range changes {
		changes[i] = Change{Day: day, Region: region, Resource: "r-" + strconv.Itoa(100+d.IntN(900)), Kind: kinds[min(d.IntN(len(kinds)), d.IntN(len(kinds)))]}
	}
	return changes
}

// limits reports whether the cloud turns a call down because there were too many: the first
// attempt of one service in eight, which ones depends on the run.
func (c Cloud) limits(run, service string, attempt int) bool {
	return attempt == 1 && c.dice("limits", run, service).IntN(8) == 0
}

// dice are thrown the same way for the same account and purpose.
func (c Cloud) dice(purpose ...string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(c.Provider + "/" + c.Account + "/" + strings.Join(purpose, "/"))) // never fails
	return rand.New(rand.NewPCG(sum.Sum64(), 1))                                              //nolint:gosec // made-up data
}
