package plantroom

import (
	"image"
	"math"
)

// paint is a colour in the JPEG's own colour space.
type paint struct {
	y      int
	cb, cr uint8
}

var (
	white      = paint{228, 128, 128}
	black      = paint{30, 128, 128}
	wall       = paint{168, 122, 132}
	concrete   = paint{104, 127, 129}
	galvanized = paint{150, 130, 127}
	lacquer    = paint{122, 126, 127}
	red        = paint{92, 108, 198}
	green      = paint{110, 112, 104}
	blue       = paint{84, 168, 106}
	yellow     = paint{176, 62, 148}
)

// canvas is an image being painted. Its coordinates are those of the viewer: for a picture taken
// upright they are turned against the stored rows and columns. All arithmetic is on integers (sines
// are rounded to one), so that every platform paints the same pixels.
type canvas struct {
	img     *image.YCbCr
	w, h    int
	upright bool
}

// newCanvas makes a canvas that stores width by height pixels. Both are even.
func newCanvas(width, height int, upright bool) *canvas {
	c := &canvas{image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420), width, height, upright}
	if upright {
		c.w, c.h = height, width
	}
	return c
}

// set paints one pixel with luma y and p's colour; points outside the canvas are ignored.
func (c *canvas) set(x, y, luma int, p paint) {
	if x < 0 || y < 0 || x >= c.w || y >= c.h {
		return
	}
	if c.upright { // EXIF orientation 6: stored row 0 is the right edge, stored column 0 the top
		x, y = y, c.w-1-x
	}
	c.img.Y[y*c.img.YStride+x] = clamp(luma)
	if (x|y)&1 == 0 {
		i := y/2*c.img.CStride + x/2
		c.img.Cb[i], c.img.Cr[i] = p.cb, p.cr
	}
}

// area paints the rectangle [x0,x1) by [y0,y1); shade is added to p's luma.
func (c *canvas) area(x0, y0, x1, y1 int, p paint, shade func(x, y int) int) {
	for y := max(0, y0); y < min(c.h, y1); y++ {
		for x := max(0, x0); x < min(c.w, x1); x++ {
			c.set(x, y, p.y+shade(x, y), p)
		}
	}
}

// round is the light on a cylinder of the given radius at distance d from its axis, lit from the
// left and above: bright at a third, falling off towards both edges.
func round(d, radius int) int {
	d += radius / 3
	return 40 - 60*d*d/(radius*radius)
}

func (c *canvas) upPipe(x, radius, from, to int, p paint) {
	c.area(x-radius, from, x+radius, to, p, func(px, _ int) int { return round(px-x, radius) })
}

func (c *canvas) crossPipe(y, radius, from, to int, p paint) {
	c.area(from, y-radius, to, y+radius, p, func(_, py int) int { return round(py-y, radius) })
}

// ring paints the points at a distance in [inner, outer) from x, y, a little brighter at the top left.
func (c *canvas) ring(x, y, inner, outer int, p paint) {
	for dy := -outer; dy < outer; dy++ {
		for dx := -outer; dx < outer; dx++ {
			if d := dx*dx + dy*dy; d >= inner*inner && d < outer*outer {
				c.set(x+dx, y+dy, p.y-24*(dx+dy)/(2*outer), p)
			}
		}
	}
}

// spoke paints a straight bar from distance inner to outer of x, y, at angle/240 of a full turn.
func (c *canvas) spoke(x, y, inner, outer, half, angle int, p paint) {
	const one = 1 << 12
	s, cs := math.Sincos(float64(angle) * math.Pi / 120)
	ux, uy := int(math.Round(cs*one)), int(math.Round(s*one))
	for dy := -outer; dy <= outer; dy++ {
		for dx := -outer; dx <= outer; dx++ {
			along, across := dx*ux+dy*uy, dx*uy-dy*ux
			if along >= inner*one && along < outer*one && across <= half*one && across >= -half*one {
				c.set(x+dx, y+dy, p.y, p)
			}
		}
	}
}

// gauge paints a dial with 11 marks over three quarters of a turn and a needle at reading, 0 to 180.
func (c *canvas) gauge(x, y, radius, reading int) {
	c.ring(x, y, radius*9/10, radius, black)
	c.ring(x, y, 0, radius*9/10, white)
	thin := max(1, radius/60)
	for i := range 11 {
		c.spoke(x, y, radius*7/10, radius*17/20, thin, 90+18*i, black)
	}
	c.ring(x, y, radius*11/20, radius*12/20, green)
	c.spoke(x, y, -radius/6, radius*3/4, 2*thin, 90+reading, red)
	c.ring(x, y, 0, radius/10, black)
}

// valve paints a hand wheel with five spokes.
func (c *canvas) valve(x, y, radius, turn int, p paint) {
	for i := range 5 {
		c.spoke(x, y, 0, radius*9/10, max(1, radius/12), turn+48*i, p)
	}
	c.ring(x, y, radius*4/5, radius, p)
	c.ring(x, y, 0, radius/5, galvanized)
}

// plantRoom paints wall and floor, a tank, a switch cabinet, pipes with flanges, and on the pipes
// gauges and valves. Everything is placed by r, in proportion to the canvas.
func (c *canvas) plantRoom(r *random) {
	c.room(r)
	floor := c.h * 4 / 5
	c.tank(r.between(c.w/10, c.w/3), floor, c.w/9, r)
	c.cabinet(r.between(c.w*5/9, c.w*7/9), floor, c.w/6, r)
	pipes := []paint{galvanized, blue, red, green, yellow, lacquer}
	for i := range r.between(2, 3) {
		radius := c.h / r.between(40, 70)
		c.crossPipe(c.h*(i+1)/9+r.between(0, c.h/20), radius, 0, c.w, pipes[r.between(0, 5)])
	}
	count := r.between(5, 7)
	for i := range count {
		x := c.w*(2*i+1)/(2*count) + r.between(-c.w/40, c.w/40)
		radius, p := c.w/r.between(45, 90), pipes[r.between(0, 5)]
		c.upPipe(x, radius, 0, floor, p)
		for y := r.between(0, c.h/4); y < floor; y += c.h / 4 {
			c.upPipe(x, radius*3/2, y, y+c.h/60, galvanized)
		}
		switch y, size := r.between(c.h/4, c.h*7/10), min(c.w, c.h)/r.between(14, 20); i % 3 {
		case 0:
			c.gauge(x, y, size, r.between(10, 170))
		case 1:
			c.valve(x, y, size, r.between(0, 47), red)
		}
	}
}

// room paints a wall lit by one lamp, and a floor of concrete slabs.
func (c *canvas) room(r *random) {
	lampX, lampY, floor := r.between(c.w/4, c.w*3/4), c.h/6, c.h*4/5
	reach := c.w*c.w + c.h*c.h
	light := func(x, y int) int {
		return 36 - 150*((x-lampX)*(x-lampX)+(y-lampY)*(y-lampY))/reach
	}
	c.area(0, 0, c.w, floor, wall, light)
	joint, line := c.h/14, max(1, c.h/600)
	c.area(0, floor, c.w, c.h, concrete, func(x, y int) int {
		if (y-floor)%joint < line || (x+(y-floor)/joint*c.w/10)%(c.w/5) < line {
			return -50
		}
		return light(x, y) / 2
	})
}

func (c *canvas) tank(x, floor, radius int, r *random) {
	top := c.h / r.between(3, 4)
	c.upPipe(x, radius, top, floor, lacquer)
	for y := top; y < floor; y += c.h / 9 {
		c.upPipe(x, radius+radius/40, y, y+c.h/90, galvanized)
	}
}

func (c *canvas) cabinet(x, floor, half int, r *random) {
	top, edge := c.h*2/5, max(1, c.w/300)
	c.area(x-half, top, x+half, floor, galvanized, func(px, py int) int {
		if px < x-half+edge || px >= x+half-edge || py < top+edge || (px > x-edge && px < x) {
			return -70
		}
		return 20 - 30*(py-top)/(floor-top)
	})
	lamps := []paint{green, green, yellow, red}
	for i := range 8 {
		c.ring(x-half+half*(i%4+1)/5, top+c.h/20*(i/4+1), 0, max(2, half/16), lamps[r.between(0, 3)])
	}
}
