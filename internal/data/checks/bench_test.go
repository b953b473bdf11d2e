package checks_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/domain/quality"
)

// sale is the row of the benchmark: ten columns, two of them texts with few distinct values.
type sale struct {
	ID       int64     `parquet:"id"`
	Customer int64     `parquet:"customer"`
	Region   string    `parquet:"region,dict"`
	SKU      string    `parquet:"sku,dict"`
	Price    float64   `parquet:"price"`
	Quantity int32     `parquet:"quantity"`
	Discount *float64  `parquet:"discount,optional"`
	At       time.Time `parquet:"at,timestamp(microsecond)"`
	Paid     bool      `parquet:"paid"`
	Note     *string   `parquet:"note,optional"`
}

// BenchmarkTenChecks runs ten checks over ten million Parquet rows.
func BenchmarkTenChecks(b *testing.B) {
	const n = 10_000_000
	path := filepath.Join(b.TempDir(), "sales.parquet")
	w, err := rows.Create[sale](path, quality.Parquet)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	batch := make([]sale, 0, 1_000)
	for i := range n {
		batch = append(batch, sale{
			ID: int64(i)*7919%n*10 + int64(i%10), Customer: int64(i % 100_003), Region: [...]string{"eu", "us", "ap"}[i%3],
			SKU: fmt.Sprintf("SKU-%04d", i%2_000), Price: float64(i%10_000) / 100, Quantity: int32(i%20 + 1),
			At: start.Add(time.Duration(i) * time.Millisecond), Paid: i%4 == 0,
		})
		if len(batch) == cap(batch) {
			if err := w.Write(batch...); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	list := []quality.Check{
		{Type: quality.SchemaMatch, AllowExtra: true, Schema: []quality.Column{{Name: "id", Type: quality.Integer}, {Name: "price", Type: quality.Number}}},
		{Type: quality.RowCount, Min: json.RawMessage("1")},
		{Type: quality.NotNull, Columns: []string{"id", "customer", "region"}},
		{Type: quality.Unique, Columns: []string{"id"}},
		{Type: quality.Freshness, Column: "at", MaxAge: duration.Duration(24 * time.Hour)},
		{Type: quality.Range, Column: "price", Min: json.RawMessage("0"), Max: json.RawMessage("1000")},
		{Type: quality.Range, Column: "quantity", Min: json.RawMessage("1")},
		{Type: quality.AcceptedValues, Column: "region", Values: []json.RawMessage{json.RawMessage(`"eu"`), json.RawMessage(`"us"`), json.RawMessage(`"ap"`)}},
		{Type: quality.Regex, Column: "sku", Pattern: `^SKU-[0-9]{4}$`},
		{Type: quality.NotNull, Name: "paid", Columns: []string{"paid"}},
	}
	for i := range list {
		list[i].Normalise()
	}
	b.ReportAllocs()
	for b.Loop() {
		report, err := checks.Run(b.Context(), checks.Request{
			Files: checks.Files{Paths: []string{path}, Format: quality.Parquet}, Checks: list,
			Now: start.Add(n * time.Millisecond), Dir: b.TempDir(),
		})
		if err != nil {
			b.Fatal(err)
		}
		if gate := quality.Decide(list, report.Results, false); report.Rows != n || gate != quality.Allow {
			b.Fatalf("%d rows, gate %s: %+v", report.Rows, gate, report.Results)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()*float64(b.N), "rows/s")
}
