package push_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
)

var update = flag.Bool("update", false, "write the vectors that workers in other languages are held to")

const example = "../../../examples/push-python"

// vectors are what a worker in another language can be held to.
type vectors struct {
	Comment   string            `json:"comment"`
	Key       string            `json:"key"` // of the workers of pool
	Pool      string            `json:"pool"`
	Now       string            `json:"now"`
	Canonical []canonicalVector `json:"canonical"`
	Numbers   map[string]string `json:"numbers"` // any spelling, and the canonical one
	NotJSON   []string          `json:"not_json"`
	Envelopes []envelopeVector  `json:"envelopes"`
	Tampered  []envelopeVector  `json:"tampered"`
}

type canonicalVector struct {
	Name      string `json:"name"`
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
}

type envelopeVector struct {
	Name      string `json:"name"`
	Envelope  string `json:"envelope"` // as it is sent
	Unsigned  string `json:"unsigned,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// fixed is an envelope without anything that changes from run to run.
func fixed(t *testing.T, key push.Key) push.Envelope {
	t.Helper()
	const uuid = "0192f0c1-0000-7000-8000-00000000000"
	tenant, err := id.Parse[id.Tenant]("tenant", uuid+"1")
	require.NoError(t, err)
	run, err := id.Parse[id.Run]("run", uuid+"2")
	require.NoError(t, err)
	task, err := id.Parse[id.Task]("task", uuid+"3")
	require.NoError(t, err)
	c := push.Callback{Tenant: tenant, Run: run, Task: task, Attempt: 2, Token: 41}
	urls, err := push.SignCallbacks("https://servo.example.com", c, key, start.Add(push.CallbackLifetime))
	require.NoError(t, err)
	return push.Envelope{
		Pool: "python", Tenant: "acme", Run: c.Run, Task: c.Task, Attempt: c.Attempt, Token: c.Token, Asset: "text/words", Pipeline: "daily", LeaseSeconds: 300,
		TimeoutSeconds: 3600, Callbacks: urls,
	}
}

func makeVectors(t *testing.T) vectors {
	t.Helper()
	key := keyAt(t, 1, start)
	v := vectors{
		Comment: "Made by Servo; the secret is for tests alone.",
		Key:     key.Worker("python").Text(), Pool: "python", Now: start.Format(time.RFC3339),
		NotJSON: []string{
			"", "{", `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\ud800"`, `["\ude00\ud83d"]`, "NaN", "[Infinity]", "-Infinity", "1e400", "01", "1.", "+1", `"\x41"`,
			"\"a\nb\"", `{"a":1,}`, "[1,]", "1 2", "\ufeff1", "/**/1", strings.Repeat("[", 101) + strings.Repeat("]", 101), strings.Repeat("9", 400),
		},
	}
	for name, input := range map[string]string{
		"literals":              `[ true, false, null, {}, [] ]`,
		"keys by UTF-16 units":  `{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"\u00f6":4,"\u0080":5,"1":6,"\r":7,"":8,"z":9,"\uffff":10}`,
		"escapes":               `"\u0000\u0001\b\t\n\u000b\f\r\u001f \"\\\/\u007f\u0080\u2028\ud834\udd1e<>&'"`,
		"non-ASCII stays":       `{"région":"Zürich 東京 😀","Ω":"\u03a9"}`,
		"numbers":               `[0,-0,-0.0,1,-1,1.0,100,1e2,1E+2,0.1,1e21,1e20,123456789012345680000,1e-6,1e-7,5e-324,1.7976931348623157e308,4.50,2e-3]`,
		"integers of any size":  `[9007199254740991,9007199254740993,18446744073709551616,123456789012345678901234567890]`,
		"nesting":               strings.Repeat(`{"a":[`, 50) + strings.Repeat(`]}`, 50),
		"keys with prefixes":    `{"aa":1,"a":2,"ab":3,"A":4,"a ":5,"á":6}`,
		"surrogates and beyond": `{"\ud800\udc00":1,"\ue000":2,"\udbff\udfff":3,"\ud7ff":4}`,
	} {
		canonical, err := canon.JSON([]byte(input))
		require.NoError(t, err, name)
		v.Canonical = append(v.Canonical, canonicalVector{name, input, string(canonical)})
	}
	v.Numbers = numbers(t)
	v.Envelopes, v.Tampered = signedVectors(t, key)
	sortVectors(&v)
	return v
}

// numbers are those that are hard to print, and many more, the same each time.
func numbers(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(f float64) {
		want, err := canon.Number(f)
		require.NoError(t, err)
		out[fmt.Sprintf("%.17e", f)] = want
	}
	for _, f := range []float64{
		0, 1, -1, 0.1, 0.5, 10, 1e5, 123456.789, 1e20, 1e21, 1.5e21, 1e22, 1e23, 1e-5, 1e-6, 1e-7, 1.5e-7, 333333333.33333329, 4.5, 295147905179352830000,
		999999999999999700000, 1424953923781206.2, -0.0000033333333333333333, 5e-324, math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53, 1<<53 + 2,
	} {
		add(f)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		if f := math.Float64frombits(random.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			add(f)
		}
		add(math.Round(random.NormFloat64()*1e6) / 100)
		add(math.Ldexp(random.Float64(), random.IntN(140)-70))
	}
	return out
}

func signedVectors(t *testing.T, key push.Key) (good, bad []envelopeVector) {
	t.Helper()
	sign := func(name string, change func(*push.Envelope)) []byte {
		e := fixed(t, key)
		change(&e)
		raw, err := push.Sign(e, key, start, lifetime, counting(byte(len(name))))
		require.NoError(t, err)
		got, err := push.Verify(raw, push.WorkerKeys(key.Worker("python")), start)
		require.NoError(t, err)
		var m map[string]any
		require.NoError(t, json.Unmarshal(raw, &m))
		delete(m["auth"].(map[string]any), "signature")
		unsigned, err := canon.Marshal(m)
		require.NoError(t, err)
		require.Equal(t, hmacOf(key.Worker("python").Secret, unsigned), got.Auth.Signature, "the signature covers what the vectors define")
		good = append(good, envelopeVector{name, string(raw), string(unsigned), got.Auth.Signature})
		return raw
	}
	raw := sign("plain", func(*push.Envelope) {})
	sign("parameters of all kinds", func(e *push.Envelope) {
		e.Parameters = json.RawMessage(`{"région":"Zürich","😀":1,"\ufb33":2,"ratio":0.1,"tiny":1e-7,"large":1e21,"list":[1.0,-0,null,true,{"b":[],"a":{}}],"text":"\u2028 \"quoted\" \\ \u0007"}`)
	})
	sign("upstream results", func(e *push.Envelope) {
		e.Cursor, e.FanOuts, e.Partition = "page\n7", 3, "2026-08-01"
		e.Upstream = []push.Upstream{
			{Run: e.Run, Task: e.Task, Asset: "bronze/orders", Result: json.RawMessage(`[{"amount":12.50}]`)},
			{Run: e.Run, Task: e.Task, Asset: "bronze/large", Partition: "ö", Omitted: true},
			{Run: e.Run, Task: e.Task, Asset: "bronze/none", Result: json.RawMessage(`null`)},
		}
		e.Trace = push.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	})
	var tree any
	require.NoError(t, json.Unmarshal(raw, &tree))
	for place, variant := range variants(tree) {
		if strings.HasPrefix(place, ".callbacks.") || strings.HasSuffix(place, " renamed") || strings.HasSuffix(place, " other") {
			continue // all of them are tested here; the file need not be so long
		}
		changed, err := canon.Marshal(variant)
		require.NoError(t, err)
		bad = append(bad, envelopeVector{Name: place, Envelope: string(changed)})
	}
	for name, spelling := range map[string][2]string{
		"a space": {`{"asset"`, `{ "asset"`}, "another number": {`"attempt":2`, `"attempt":2.0`}, "an escape": {`"text/words"`, `"text\/words"`},
		"a key twice": {`"contract":1`, `"contract":1,"contract":1`},
	} {
		bad = append(bad, envelopeVector{Name: "spelt with " + name, Envelope: strings.Replace(string(raw), spelling[0], spelling[1], 1)})
	}
	return good, bad
}

func TestVectors(t *testing.T) {
	t.Parallel()
	var made bytes.Buffer
	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	require.NoError(t, encoder.Encode(makeVectors(t)))
	path := filepath.Join(example, "testdata", "vectors.json")
	if *update {
		require.NoError(t, os.WriteFile(path, made.Bytes(), 0o644))
	}

	t.Run("the vectors for other languages are what this package makes", func(t *testing.T) {
		t.Parallel()
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(kept), made.String(), "pass -update if the contract has changed, and consider workers already deployed")
	})

	t.Run("what is no JSON there is none here, and what is tampered with is refused here", func(t *testing.T) {
		t.Parallel()
		v := makeVectors(t)
		for _, text := range v.NotJSON {
			_, err := canon.JSON([]byte(text))
			require.Error(t, err, text)
		}
		key, err := push.ParseWorkerKey(v.Key)
		require.NoError(t, err)
		require.Greater(t, len(v.Tampered), 50)
		for _, e := range v.Tampered {
			_, err := push.Verify([]byte(e.Envelope), push.WorkerKeys(key), start)
			refused(t, err, e.Name)
		}
	})

	t.Run("the worker in Python agrees byte for byte", func(t *testing.T) {
		t.Parallel()
		command := exec.CommandContext(t.Context(), "python3", "-B", "-m", "unittest")
		command.Dir = example
		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))
		require.Contains(t, string(output), "OK")
	})
}

// sortVectors gives the file one order.
func sortVectors(v *vectors) {
	byName := func(a, b envelopeVector) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(v.Canonical, func(a, b canonicalVector) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(v.Tampered, byName)
}
