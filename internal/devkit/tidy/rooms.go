package tidy

// Room is a part of the repository with one job. The table of rooms is the architecture: it states
// which room may import which, the check below enforces it, and the picture in README.md is made
// from it.
type Room struct {
	Name  string   // as the picture shows it
	Dir   string   // all packages below it belong to the room; empty: the root package alone
	Holds string   // what the room contains, for the picture
	May   []string // rooms that its code may import
	Tests []string // rooms that its tests may import besides
	// Siblings are imports between packages of the room ("from > to"). A package may always import
	// the packages below it. "*" permits all of them: the compiler refuses cycles.
	Siblings []string
	// Libraries are the third-party packages that the room may import; nil permits every package
	// without a door. Tests may also import the test libraries.
	Libraries []string
}

// Rooms are the rooms of Servo, from the bottom to the top.
var Rooms = []Room{
	{
		Name: "base", Dir: "internal/base", Holds: "errors, ids, canonical JSON, event envelopes, guarded HTTP, loops, traces",
		Siblings: []string{"*"}, Libraries: []string{"github.com/google/uuid", "github.com/gowebpki/jcs", "go.opentelemetry.io/otel", "golang.org/x/net"},
	},
	{
		Name: "domain", Dir: "internal/domain", Holds: "the rules, pure: runs, assets, checks, plans, releases, schedules, configs, tenants, access, fairness, alerts",
		May: []string{"base"}, Siblings: []string{"asset > partition", "backfill > partition", "asset > quality", "asset > secret", "config > asset", "config > partition", "partition > schedule", "plan > partition", "config > schedule", "output > quality", "plan > asset", "run > output", "run > quality", "platform > release", "simulate > schedule"},
		Libraries: []string{"github.com/google/cel-go", "github.com/google/uuid", "go.yaml.in/yaml"},
	},
	{Name: "store", Dir: "internal/store", Holds: "all SQL: migrations, queries, transactions", May: []string{"base", "domain"}, Tests: []string{"devkit"}},
	{
		Name: "engine", Dir: "internal/engine", Holds: "the write path: load, decide, append events and rows, in one transaction",
		May: []string{"base", "domain", "store"}, Tests: []string{"devkit"}, Siblings: []string{"*"}, Libraries: []string{"github.com/google/uuid", "golang.org/x/sync"},
	},
	{
		Name: "loops", Dir: "internal/loops", Holds: "background work: scheduler, admission, reaper, dispatcher, backfiller, rollouts, alerter, feed, presence",
		May: []string{"base", "domain", "store", "engine"}, Tests: []string{"contract", "daemon", "devkit"},
	},
	{
		Name: "data", Dir: "internal/data", Holds: "outputs: blob stores, file formats, checks over files",
		May: []string{"base", "domain"}, Siblings: []string{"*"},
	},
	{Name: "contract", Dir: "gen", Holds: "the API's messages, generated from proto/"},
	{Name: "client", Dir: "client", Holds: "the Go client of the API", May: []string{"contract"}, Tests: []string{"devkit"}},
	{Name: "sdk", Dir: "sdk", Holds: "the Python SDK, embedded for workers"},
	{
		Name: "worker", Dir: "internal/worker", Holds: "executes attempts: claims, heartbeats, reports, outputs, host processes",
		May: []string{"base", "domain", "data", "contract", "sdk"}, Siblings: []string{"local > host", "python > host"},
	},
	{Name: "servo", Dir: "", Holds: "the package that authors of assets import", May: []string{"base", "domain", "data", "contract", "client", "worker"}, Tests: []string{"devkit"}},
	{Name: "docs", Dir: "docs", Holds: "pages that the server shows"},
	{
		Name: "proof", Dir: "internal/proof", Holds: "checks of the guarantees: model of the write path, projection verifier, chaos tests",
		May:   []string{"base", "domain", "store"},
		Tests: []string{"client", "contract", "daemon", "devkit", "edge", "engine", "loops", "servo"},
	},
	{
		Name: "edge", Dir: "internal/edge", Holds: "everything that answers callers: gRPC API, REST, pages, callbacks, tokens, rate limits, metrics",
		May: []string{"base", "domain", "store", "engine", "contract", "docs", "proof"}, Tests: []string{"devkit"},
		Siblings: []string{
			"api > intercept", "api > oidc", "api > problem", "api > ratelimit", "callbacks > api", "callbacks > intercept", "callbacks > problem",
			"callbacks > rest", "intercept > oidc", "intercept > problem", "intercept > ratelimit", "rest > api", "rest > intercept",
			"rest > problem", "web > api", "web > intercept", "web > oidc", "web > problem", "web > rest",
		},
	},
	{
		Name: "daemon", Dir: "internal/daemon", Holds: "one server: options, wiring, start and stop",
		May: []string{"base", "domain", "store", "engine", "loops", "data", "edge"}, Tests: []string{"contract", "devkit"},
	},
	{Name: "examples", Dir: "examples", Holds: "programs to copy from", May: []string{"servo", "client", "contract"}, Tests: []string{"domain"}, Siblings: []string{"*"}},
	{
		Name: "devkit", Dir: "internal/devkit", Holds: "for development: private PostgreSQL, test servers, benchmarks, demo, checks of this repository",
		May:      []string{"base", "domain", "store", "engine", "loops", "edge", "worker", "servo", "proof", "daemon", "client", "contract", "examples"},
		Siblings: []string{"*"},
	},
	{
		Name: "cli", Dir: "internal/cli", Holds: "the commands of the binary",
		May: []string{"base", "domain", "store", "engine", "edge", "worker", "servo", "proof", "daemon", "devkit", "client", "contract"},
	},
	{Name: "cmd", Dir: "cmd", Holds: "main", May: []string{"cli"}, Libraries: []string{}},
}

// Door is a package that few may import.
type Door struct {
	Package string
	Rooms   []string // names of rooms, or directories below them
	Tests   bool     // tests may import it everywhere
	TestsOf []string // directories whose tests may import it
	Why     string
}

// Doors are the packages with few importers. A package without a door may be imported wherever the
// room's list of libraries permits it.
var Doors = []Door{
	{Package: "github.com/jackc/pgx", Rooms: []string{"store", "daemon", "internal/devkit/bench", "internal/devkit/servotest", "internal/proof/chaos"}, TestsOf: []string{"internal/loops/dispatcher"}, Why: "only store has SQL; daemon opens the pool, benchmarks and chaos tests look behind the store"},
	{Package: "database/sql/driver", Rooms: []string{"internal/data/checks"}, Why: "the interface of DuckDB"},
	{Package: "github.com/duckdb/duckdb-go", Rooms: []string{"internal/data/checks"}, Why: "checks runs queries with it"},
	{Package: "database/sql", Why: "PostgreSQL is used through pgx, in store"},
	{Package: "github.com/pressly/goose", Rooms: []string{"store"}, Why: "store has the migrations"},
	{Package: module + "/internal/devkit/servotest", Rooms: []string{"internal/devkit/servotest"}, Tests: true, Why: "tests only"},
	{Package: module + "/internal/devkit/devpg", Rooms: []string{"devkit", "cli"}, Tests: true, Why: "a server uses the database it is given"},
	{Package: module + "/internal/proof/chaos", Why: "it has tests only"},
	{Package: "google.golang.org/grpc", Rooms: []string{"contract", "client", "worker", "servo", "edge", "daemon", "devkit", "cli", "examples"}, Tests: true, Why: "the API's messages stop at the edges"},
	{Package: "google.golang.org/protobuf", Rooms: []string{"contract", "client", "worker", "servo", "edge", "daemon", "devkit", "cli", "examples"}, Tests: true, Why: "the API's messages stop at the edges"},
	{Package: "github.com/grpc-ecosystem/grpc-gateway", Rooms: []string{"contract", "edge"}, Why: "edge has REST"},
	{Package: "github.com/fullstorydev/grpchan", Rooms: []string{"edge"}, Why: "edge has REST"},
	{Package: "buf.build/go/protovalidate", Rooms: []string{"edge"}, Why: "edge validates requests"},
	{Package: "github.com/a-h/templ", Rooms: []string{"internal/edge/web"}, Why: "web has the pages"},
	{Package: "github.com/chromedp", Rooms: []string{"internal/edge/web", "internal/devkit/servotest"}, Why: "web has the pages"},
	{Package: "github.com/coreos/go-oidc", Rooms: []string{"internal/edge/oidc", "internal/devkit/servotest"}, Tests: true, Why: "oidc verifies tokens"},
	{Package: "github.com/go-jose/go-jose", Rooms: []string{"internal/edge/oidc", "internal/devkit/servotest"}, Tests: true, Why: "oidc verifies tokens"},
	{Package: "golang.org/x/oauth2", Rooms: []string{"internal/edge/oidc", "internal/devkit/servotest"}, Tests: true, Why: "oidc requests tokens"},
	{Package: "go.opentelemetry.io/otel/sdk", Rooms: []string{"internal/base/telemetry"}, Tests: true, Why: "telemetry sets up traces"},
	{Package: "go.opentelemetry.io/otel/exporters", Rooms: []string{"internal/base/telemetry"}, Tests: true, Why: "telemetry sets up traces"},
	{Package: "github.com/spf13/cobra", Rooms: []string{"cli"}, Why: "cli has the commands"},
	{Package: "github.com/spf13/pflag", Rooms: []string{"cli"}, Why: "cli has the commands"},
	{Package: "github.com/gowebpki/jcs", Rooms: []string{"internal/base/canon"}, Why: "canon has canonical JSON"},
	{Package: "gocloud.dev", Rooms: []string{"internal/data/blob"}, Why: "blob has the object stores"},
	{Package: "github.com/apache/arrow-go", Rooms: []string{"internal/data/rows"}, Why: "rows reads Parquet with it"},
	{Package: "github.com/parquet-go/parquet-go", Rooms: []string{"internal/data/rows"}, Why: "rows writes Parquet with it"},
	{Package: "github.com/fsouza/fake-gcs-server", Tests: true, Why: "tests only"},
	{Package: "github.com/johannesboyne/gofakes3", Tests: true, Why: "tests only"},
	{Package: "github.com/stretchr/testify", Rooms: []string{"internal/devkit/servotest"}, Tests: true, Why: "tests only"},
	{Package: "github.com/google/go-cmp", Tests: true, Why: "tests only"},
	{Package: "github.com/rogpeppe/go-internal", Tests: true, Why: "tests only"},
	{Package: "github.com/santhosh-tekuri/jsonschema", Tests: true, Why: "tests only"},
	{Package: "go.uber.org/goleak", Tests: true, Why: "tests only"},
	{Package: "pgregory.net/rapid", Tests: true, Why: "tests only"},
	{Package: "math/rand", Why: "use math/rand/v2"},
	{Package: "log", Why: "use log/slog, passed in"},
	{Package: "io/ioutil", Why: "use io and os"},
}
