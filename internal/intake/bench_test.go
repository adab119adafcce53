package intake

import (
	"context"
	"fmt"
	"testing"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// BenchmarkAdopt takes small files of different lengths, one after the other: fsyncs and commits are what it costs.
func BenchmarkAdopt(b *testing.B) {
	for _, move := range []bool{true, false} {
		b.Run(fmt.Sprint("move ", move), func(b *testing.B) {
			s := newSite(b)
			if _, err := spool.Open(durable.OS(), s.dir); err != nil {
				b.Fatal(err)
			}
			p := s.start(durable.OS())
			defer p.stop()
			requests := make([]Request, b.N)
			for i := range requests {
				requests[i] = s.request(s.write(fmt.Sprintf("DSC_%05d.JPG", i), fmt.Sprintf("%*d", 1000+i%5000, i)), move)
			}
			b.ResetTimer()
			for i := range requests {
				if _, err := p.Adopt(context.Background(), requests[i]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
